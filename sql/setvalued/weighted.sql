-- the release's own view: item sets with weights whose sums are estimates of counts.
--   columns   the items under their own name, weight
--   reads     __sets__(part, items, weight)
--   holes     __items__: sets.items under its own name;  __weight__: sets.weight, renamed where the items have this name
--   source    sets of the tree with their consistent sizes, and sets that stand for what was pruned
SELECT __items__, __weight__
FROM __sets__ AS sets
