-- check: numbers run from 0 without gaps. Rows: the range of the numbers if they do not.
--   columns   first, last, different
--   reads     __table__;  hole __number__: the column
SELECT first, last, different
FROM (SELECT min(__number__) AS first, max(__number__) AS last, count(DISTINCT __number__) AS different FROM __table__) AS n
WHERE first <> 0 OR last <> different - 1
