-- marked: the different sets as lists of different items in order, whether one is NULL or holds NULL, or an item twice.
--   columns   items, records, missing, repeated; a set may stand in several rows, one for each way in which it is written
--   reads     __source__;  hole __items__: the list as an expression
--   why       lists are DuckDB's own, outside the portable subset
SELECT
  list_sort(list_distinct(items)) AS items,
  records,
  items IS NULL OR list_count(items) < len(items) AS missing,
  coalesce(list_count(items) > len(list_distinct(items)), FALSE) AS repeated
FROM (
  SELECT items, count(*) AS records
  FROM (SELECT __items__ AS items FROM __source__) AS read
  GROUP BY items
) AS counted
