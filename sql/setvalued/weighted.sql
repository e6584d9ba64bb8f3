-- the release's own view: item sets with weights whose sums are estimates of counts.
--   columns   the items under their own name, weight
--   reads     __sets__(part, the items, count) or (the items, weight)
--   holes     __items__: their column;  __weight__: count, renamed where the items have this name
--   source    Chen et al. 2011, algorithm 1; or sets of synthetic records
SELECT __items__, __weight__
FROM __sets__ AS sets
