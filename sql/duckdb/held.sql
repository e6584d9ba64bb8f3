-- held: the rows whose list of items meets a condition.
--   columns   row
--   reads     __rows__(row, items)
--   holes     __condition__: over items
--   why       lists are DuckDB's own, outside the portable subset
SELECT row
FROM __rows__
WHERE __condition__
