-- tallied: the records of every combination of quasi-identifiers and value; private, it never leaves the publisher.
--   columns   combination, code, records
--   reads     __combined__(code, combination) (sql/randomize/combined.sql)
SELECT combination, code, count(*) AS records
FROM __combined__
GROUP BY combination, code
ORDER BY combination, code
