-- items: every item that occurs.
--   columns   item
--   reads     __baskets__(basket, items, records)
--   why       lists are DuckDB's own, outside the portable subset
SELECT DISTINCT unnest(items) AS item
FROM __baskets__
