-- check: no set holds an item twice, or NULL. Rows: those that do.
--   columns   part, items
--   reads     __sets__(part, items, weight)
--   why       lists are DuckDB's own, outside the portable subset
SELECT part, items
FROM __sets__
WHERE coalesce(len(list_distinct(items)) < len(items), TRUE)
