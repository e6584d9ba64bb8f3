-- missing: how many records there are, how many are NULL or hold NULL, and how many of the others hold an item twice.
--   columns   records, missing, repeated
--   reads     __marked__ (sql/duckdb/marked.sql)
SELECT
  CAST(coalesce(sum(records), 0) AS BIGINT) AS records,
  CAST(coalesce(sum(CASE WHEN missing THEN records ELSE 0 END), 0) AS BIGINT) AS missing,
  CAST(coalesce(sum(CASE WHEN repeated AND NOT missing THEN records ELSE 0 END), 0) AS BIGINT) AS repeated
FROM __marked__
