-- units: which items meet each of some conditions as the only one of their list.
--   columns   code, a column for every condition
--   reads     __universe__(code, item)
--   holes     __conditions__: over a list called items, each under its name
--   why       lists are DuckDB's own, outside the portable subset
SELECT code, __conditions__
FROM (SELECT code, list_value(item) AS items FROM __universe__) AS units
ORDER BY code
