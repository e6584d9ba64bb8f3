-- summary: how many records there are, how many traces stand once and twice among them, and a fingerprint of all.
--   columns   records, once, twice, fingerprint (the sum of the traces: the same whatever the order)
--   reads     __counted__(trace, records): each trace once
SELECT
  coalesce(sum(records), 0) AS records,
  coalesce(sum(CASE WHEN records = 1 THEN 1 ELSE 0 END), 0) AS once,
  coalesce(sum(CASE WHEN records = 2 THEN 1 ELSE 0 END), 0) AS twice,
  coalesce(sum(CAST(trace AS DECIMAL(19, 0)) * CAST(records AS DECIMAL(19, 0))), 0) AS fingerprint
FROM __counted__
