-- sets: a keyed hash of every different item set.
--   columns   hash, records
--   reads     __baskets__ (sql/duckdb/baskets.sql);  hole __hash__: that of its items as an expression over b
SELECT __hash__ AS hash, b.records
FROM __baskets__ AS b
