-- fingerprint: what binds a key to these records.
--   columns   records, total (the sum of their hashes)
--   reads     __hashed__ (sql/portable/hashed.sql)
--   why       a sum does not depend on any order; 38 digits hold that of 10^19 hashes
SELECT count(*) AS records, coalesce(sum(CAST(h AS DECIMAL(38, 0))), 0) AS total
FROM __hashed__
