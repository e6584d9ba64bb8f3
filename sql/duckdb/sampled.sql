-- sampled: a random sample of 50,000 records of a table, the same one each time.
--   columns   those of the table
--   reads     __table__
SELECT *
FROM __table__
USING SAMPLE reservoir(50000 ROWS) REPEATABLE (1)
