-- units: how many records of a part lie in each stretch of its line.
--   columns   part, bin, records; in order
--   reads     __drawn__ (sql/portable/drawn.sql)
SELECT part, bin, count(*) AS records
FROM __drawn__
GROUP BY part, bin
ORDER BY part, bin
