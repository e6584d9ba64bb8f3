-- leaf_cells: the cells of the tree's leaves with their noisy sizes.
--   columns   the columns, count
--   reads     __cells__ AS c (part, the columns, weight), __tree__ AS t (part, expanded, size)
--   holes     __columns__: the columns of c
SELECT __columns__, t.size AS count
FROM __cells__ AS c
JOIN __tree__ AS t ON c.part = t.part
WHERE t.expanded IS NULL
