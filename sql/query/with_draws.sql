-- with_draws: the records with the codes of the values that were drawn for them, a column for each completed table.
--   columns   the quasi-identifiers and the codes, under internal names
--   reads     __records__: QIT with the numbers of its records, __completed__(record, and columns of codes)
--   holes     __columns__: of r and c, named;  __record__: the column with the number of a record
SELECT __columns__
FROM __records__ AS r
JOIN __completed__ AS c ON __record__ = c.record
