-- reach: how many rows a table has, and between what its whole numbers lie.
--   columns   rows, then for each column its least and its greatest number (NULL: none)
--   reads     __table__;  holes __ends__: min and max of each column, perhaps of none
SELECT count(*) AS rows, __ends__
FROM __table__
