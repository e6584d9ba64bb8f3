-- composed: how often each bucket lists each value.
--   columns   bid, code, records
--   reads     __assigned__(bid, code): one row for each record; __fakes__(bid, code): one for each fake
--   why       where records are assigned by several workers, what they list is counted there, too
SELECT bid, code, CAST(count(*) AS INTEGER) AS records
FROM (
  SELECT bid, code
  FROM __assigned__
  UNION ALL
  SELECT bid, code
  FROM __fakes__
) AS listed
GROUP BY bid, code
