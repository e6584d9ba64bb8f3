-- composition: which sensitive values each bucket lists.
--   columns   bid, code (of privsql_values), records; as stored
--   reads     __st__(bid, s0.., count) (window without ORDER BY: the stored order is what is looked at), __values__(code, s0..)
--   holes     __sa__: s0..;  __same_value__: NULL-safe equality of s and v;  __filter__: which buckets
SELECT s.bid, v.code, s.records
FROM (SELECT row_number() OVER () AS pos, bid, __sa__, "count" AS records FROM __st__ WHERE __filter__) AS s
JOIN __values__ AS v ON __same_value__
ORDER BY s.pos
