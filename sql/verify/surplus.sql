-- check: two tables hold the same rows equally often, or one no row more often than the other. Rows: those that differ.
--   columns   the columns, surplus of the first
--   reads     __first__, __second__
--   holes     __columns__;  __first_weight__, __second_weight__: rows that a row stands for;  __fault__: predicate of sum(n)
SELECT __columns__, sum(n) AS surplus
FROM (
  SELECT __columns__, __first_weight__ AS n FROM __first__
  UNION ALL
  SELECT __columns__, -__second_weight__ AS n FROM __second__
) AS sides
GROUP BY __columns__
HAVING coalesce(__fault__, TRUE)
