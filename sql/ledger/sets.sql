-- sets: what item sets are known by.
--   columns   id = NULL, person = NULL, trace (a digest of the items), records, value = NULL
--   reads     __baskets__ (sql/duckdb/baskets.sql);  hole __trace__: the digest as an expression over b
SELECT CAST(NULL AS VARCHAR) AS id, CAST(NULL AS VARCHAR) AS person, __trace__ AS trace, b.records, CAST(NULL AS VARCHAR) AS value
FROM __baskets__ AS b
