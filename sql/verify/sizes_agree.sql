-- check: QIT and ST agree on the size of every bucket. Rows: buckets where they differ.
--   columns   bid, difference = records in QIT - records in ST
--   reads     __qit__(bid, ..), __sizes__ (sql/verify/bucket_sizes.sql)
SELECT bid, sum(n) AS difference
FROM (
  SELECT bid, count(*) AS n FROM __qit__ GROUP BY bid
  UNION ALL
  SELECT bid, -size AS n FROM __sizes__
) AS sides
GROUP BY bid
HAVING coalesce(sum(n) <> 0, TRUE) OR bid IS NULL
