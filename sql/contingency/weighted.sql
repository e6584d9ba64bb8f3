-- the release's own view: cells with weights whose sums are estimates of counts.
--   columns   the columns, weight
--   reads     __cells__(part, the columns, weight)
--   holes     __columns__: cells.columns;  __weight__: the column as it lies
--   source    cells of the tree with their consistent sizes, and cells that stand for what was pruned
SELECT __columns__, __weight__
FROM __cells__ AS cells
