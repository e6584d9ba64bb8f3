-- missing: how many records there are, and how many are left out because of NULL.
--   columns   records, missing
--   reads     __marked__ (sql/duckdb/marked.sql)
SELECT
  CAST(coalesce(sum(records), 0) AS BIGINT) AS records,
  CAST(coalesce(sum(CASE WHEN missing THEN records ELSE 0 END), 0) AS BIGINT) AS missing
FROM __marked__
