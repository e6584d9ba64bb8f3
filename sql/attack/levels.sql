-- levels: a quasi-identifier as numbers: the rank of every record's value (NULL last).
--   columns   level = 0, 1, ..; one row per record, as stored
--   reads     __rows__ (sql/attack/rows.sql);  hole __column__
SELECT level
FROM (SELECT pos, dense_rank() OVER (ORDER BY __column__ NULLS LAST) - 1 AS level FROM __rows__) AS ranked
ORDER BY pos
