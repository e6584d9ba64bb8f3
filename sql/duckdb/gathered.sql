-- gathered: the items of each record as a list, from one row for each item.
--   columns   items
--   reads     __source__;  holes __record__, __item__: its columns
--   why       lists are DuckDB's own, outside the portable subset; a record that is NULL is one of its own per row
SELECT items
FROM (
  SELECT list(__item__) AS items
  FROM __source__
  WHERE __record__ IS NOT NULL
  GROUP BY __record__
  UNION ALL
  SELECT NULL AS items
  FROM __source__
  WHERE __record__ IS NULL
) AS gathered
