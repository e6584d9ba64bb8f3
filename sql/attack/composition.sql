-- composition: which sensitive values each bucket lists.
--   columns   bid, code (of privsql_values), records; as stored
--   reads     __st__(bid, s0.., count) in the stored order,
--             which is what is looked at, __values__(code, s0..)
--   holes     __stored__: what the rows are ordered by as they lie, nothing where they are read so;  __sa__: s0..;  __same_value__: NULL-safe equality of s and v;  __filter__: which buckets
SELECT s.bid, v.code, s.records
FROM (SELECT row_number() OVER (ORDER BY __stored__) AS pos, bid, __sa__, "count" AS records FROM __st__ WHERE __filter__) AS s
JOIN __values__ AS v ON __same_value__
ORDER BY s.pos
