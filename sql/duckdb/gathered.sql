-- gathered: the items of each record as a list, from one row for each item; a row of no record (NULL) is left out.
--   columns   items
--   reads     __source__;  holes __record__, __item__: its columns
--   why       lists are DuckDB's own, outside the portable subset
SELECT list(__item__) AS items
FROM __source__
WHERE __record__ IS NOT NULL
GROUP BY __record__
