-- privsql_cells: cells with weights: of the tree, and those that stand for what was pruned.
--   columns   part (of privsql_tree), the columns, weight
--   reads     __given__(part, s0.., weight)
--   holes     __columns__: g.s0.. under their own names;  __part__, __weight__: names;  __order__: g.s0..
SELECT g.part AS __part__, __columns__, g.weight AS __weight__
FROM __given__ AS g
ORDER BY g.part, __order__, g.weight
