-- check: no NULL in columns in which none is published. Rows: one if there is any.
--   columns   found = 1
--   reads     __table__;  holes __empty__: one of the columns is NULL
SELECT 1 AS found
FROM __table__
WHERE coalesce(__empty__, TRUE)
LIMIT 1
