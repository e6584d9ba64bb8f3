-- check: the keys of a lookup table are unique. Rows: keys that stand more than once.
--   columns   the key columns, times
--   reads     __table__;  holes __columns__
SELECT __columns__, count(*) AS times
FROM __table__
GROUP BY __columns__
HAVING count(*) > 1
LIMIT 1
