-- baskets: the different sets of items that are kept, each with its number of records, in canonical order.
--   columns   basket = 0, 1, .., items, records
--   reads     __marked__ (sql/duckdb/marked.sql)
--   why       lists are DuckDB's own, outside the portable subset
SELECT row_number() OVER (ORDER BY items) - 1 AS basket, items, records
FROM (
  SELECT items, CAST(sum(records) AS BIGINT) AS records
  FROM __marked__
  WHERE NOT missing
  GROUP BY items
) AS counted
ORDER BY basket
