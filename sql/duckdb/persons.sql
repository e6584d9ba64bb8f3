-- persons: all records of some values of a column, chosen by a hash, so that the records of a person stay together.
--   columns   those of the table
--   reads     __table__;  holes __column__, __parts__: one in so many values, __most__: how many records at most
SELECT *
FROM __table__
WHERE hash(__column__) % __parts__ = 0
LIMIT __most__
