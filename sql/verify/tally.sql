-- tally: how often each combination of columns occurs.
--   columns   the columns, n
--   reads     __table__;  holes __columns__;  __weight__: rows that a row stands for
SELECT __columns__, CAST(sum(__weight__) AS BIGINT) AS n
FROM __table__
GROUP BY __columns__
