-- units: the items that meet a condition as the only one of their list.
--   columns   code
--   reads     __universe__(code, item)
--   holes     __condition__: over a list called items
--   why       lists are DuckDB's own, outside the portable subset
SELECT code
FROM (SELECT code, list_value(item) AS items FROM __universe__) AS units
WHERE __condition__
ORDER BY code
