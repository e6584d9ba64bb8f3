-- check: the weights of every combination are shares. Rows: combinations whose weights are not as many as values, not of
--        these values, below 0 or no share of 1 together; and how many combinations there are, if that is another number.
--   columns   combination, weights (how many), total (NULL of the number of combinations)
--   reads     __weights__(combination, code, weight), which hold no code twice
--   holes     __combinations__, __listed__: how many combinations and values there are;  __close__: how near to 1 is near
WITH sums AS (
  SELECT combination, count(weight) AS weights, min(weight) AS least, sum(weight) AS total, min(code) AS first, max(code) AS last
  FROM __weights__
  GROUP BY combination
)
SELECT combination, weights, total
FROM sums
WHERE coalesce(combination < 0 OR combination >= __combinations__ OR weights <> __listed__ OR first <> 0 OR last <> __listed__ - 1
  OR least < 0 OR total < 1 - __close__ OR total > 1 + __close__, TRUE)
UNION ALL
SELECT NULL AS combination, count(*) AS weights, NULL AS total
FROM sums
HAVING count(*) <> __combinations__
