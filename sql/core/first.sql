-- first: some records of a table, whichever the engine reads first.
--   columns   those of the table
--   reads     __table__;  hole __most__: how many records
SELECT *
FROM __table__
LIMIT __most__
