-- the release's own view of marginals: rows with weights whose sums are about the estimates of counts.
--   columns   the columns, weight
--   reads     __rows__(the columns, weight)
--   holes     __columns__: rows.columns;  __weight__: the column as it lies
--   why       rows are drawn from the published tables and weighted to fit them: for tools that know no more than SQL
SELECT __columns__, __weight__
FROM __rows__
