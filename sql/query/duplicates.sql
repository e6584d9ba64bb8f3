-- check: no record meets two rows of a lookup table. Rows: values of the release that do, however the engine compares
-- them with the keys: '20' and '020' are one number, NULL meets nothing.
--   columns   the release's columns, times
--   reads     __records__, __table__
--   holes     __own__: the release's columns;  __columns__: the same of r;  __met__: equality of keys of l and columns of r
SELECT __columns__, count(*) AS times
FROM (
  SELECT DISTINCT __own__
  FROM __records__
) AS r
JOIN __table__ AS l ON __met__
GROUP BY __columns__
HAVING coalesce(count(*) > 1, TRUE)
LIMIT 1
