-- check: two tables hold the same rows equally often. Rows: those that do not, with the surplus of the first.
--   columns   the columns, surplus
--   reads     __first__, __second__, each with a column n = how often
--   holes     __columns__
SELECT __columns__, sum(n) AS surplus
FROM (
  SELECT __columns__, n FROM __first__
  UNION ALL
  SELECT __columns__, -n AS n FROM __second__
) AS sides
GROUP BY __columns__
HAVING coalesce(sum(n) <> 0, TRUE)
