-- records: one row for each record, with its set.
--   columns   items
--   reads     __baskets__(basket, items, records)
--   why       lists are DuckDB's own, outside the portable subset
SELECT b.items
FROM __baskets__ AS b, unnest(range(b.records)) AS one(number)
