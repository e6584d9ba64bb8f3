-- size: the number of rows of a table.
--   columns   records
--   reads     __table__
SELECT count(*) AS records
FROM __table__
