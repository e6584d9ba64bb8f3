-- sets: what item sets are known by.
--   columns   id = NULL, trace (a digest of the items), records, value = NULL
--   reads     __baskets__ (sql/duckdb/baskets.sql);  hole __trace__: the digest as an expression over b
SELECT CAST(NULL AS VARCHAR) AS id, __trace__ AS trace, b.records, CAST(NULL AS VARCHAR) AS value
FROM __baskets__ AS b
