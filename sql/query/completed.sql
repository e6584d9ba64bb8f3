-- completed: the source's columns as one completed table has them.
--   columns   the columns of the source
--   reads     __records__: with_draws, __values__
--   holes     __columns__: of r and v, named;  __drawn__: the column of r with the codes of the table;  __code__: a column as it lies
SELECT __columns__
FROM __records__ AS r
JOIN __values__ AS v ON __code__ = __drawn__
