-- apart: the items of each set, one row each.
--   columns   basket, item
--   reads     __baskets__(basket, items)
--   why       lists are DuckDB's own, outside the portable subset
SELECT basket, unnest(items) AS item
FROM __baskets__
