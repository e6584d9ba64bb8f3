-- check: numbers run from 0 without gaps, none is missing. Rows: the range of the numbers if they do not; nothing for no rows.
--   columns   first, last, different
--   reads     __table__;  hole __number__: the column
SELECT first, last, different
FROM (
  SELECT min(__number__) AS first, max(__number__) AS last, count(DISTINCT __number__) AS different, count(*) - count(__number__) AS missing
  FROM __table__
) AS n
WHERE coalesce(missing > 0 OR first <> 0 OR last <> different - 1, FALSE)
