-- privsql_cells: cells with weights: of the tree, and those that stand for what was pruned.
--   columns   part (of privsql_tree), the columns, weight
--   reads     __given__: the same;  holes __columns__, __order__: the columns
SELECT part, __columns__, weight
FROM __given__
ORDER BY part, __order__, weight
