-- source_values: the source's records of each listed value that meet a condition.
--   columns   code, records
--   reads     __records__ (sql/core/records.sql), __values__(code, s0..)
--   holes     __filter__: condition on quasi-identifiers;  __same_value__: NULL-safe equality of r and v
SELECT v.code, count(*) AS records
FROM __records__ AS r
JOIN __values__ AS v ON __same_value__
WHERE __filter__
GROUP BY v.code
ORDER BY v.code
