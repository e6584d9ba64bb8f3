-- privsql_sets: item sets with weights: of the tree, and those that stand for what was pruned.
--   columns   part (of privsql_tree; -1: records without items), items, weight
--   reads     __given__(part, items, weight)
SELECT part, items, weight
FROM __given__
ORDER BY part, items, weight
