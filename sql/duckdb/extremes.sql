-- extremes: each of some conditions of the list of no item, and of the list of all.
--   columns   everything, a column for every condition
--   reads     __universe__(code, item)
--   holes     __conditions__: over a list called items, each under its name
--   why       lists are DuckDB's own, outside the portable subset
SELECT everything, __conditions__
FROM (
  SELECT FALSE AS everything, [] AS items
  UNION ALL
  SELECT TRUE, list(item ORDER BY code) FROM __universe__
) AS lists
ORDER BY everything
