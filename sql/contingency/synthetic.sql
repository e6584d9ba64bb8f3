-- the release's own view of marginals: rows with weights whose sums are about the estimates of counts.
--   columns   the columns, weight
--   reads     __rows__(the columns, weight);  hole __columns__: rows.columns
--   why       rows are drawn from the published tables and weighted to fit them: for tools that know no more than SQL
SELECT __columns__, weight
FROM __rows__
