-- marked: the different sets as lists of different items in order, and whether one is left out because of NULL.
--   columns   items (none of a list that is NULL), records, missing; a set may stand in several rows, one for each way in
--             which it is written
--   reads     __source__
--   holes     __items__: the list as an expression;  __suppress__: whether a list that is or holds NULL is left out
--   why       lists are DuckDB's own, outside the portable subset
SELECT
  coalesce(list_sort(list_distinct(items)), []) AS items,
  records,
  __suppress__ AND (items IS NULL OR list_count(items) < len(items)) AS missing
FROM (
  SELECT items, count(*) AS records
  FROM (SELECT __items__ AS items FROM __source__) AS read
  GROUP BY items
) AS counted
