-- combinations: every combination of quasi-identifiers of the source, numbered; the most frequent ones together as -2.
--   columns   q0.., qid
--   reads     __records__ (sql/core/records.sql)
--   holes     __qi__: q0..;  __size__: most records of a bucket;  __most__: (combination, value, bucket) that are looked at
--   why       a combination of n records lies in n buckets at most, in each of which it meets as many values as that
--             bucket holds, and no more than n.
SELECT __qi__, CASE WHEN sum(n * least(n, __size__)) OVER (ORDER BY place) <= __most__ THEN place - 1 ELSE -2 END AS qid
FROM (
  SELECT __qi__, n, row_number() OVER (ORDER BY n) AS place
  FROM (SELECT __qi__, count(*) AS n FROM __records__ GROUP BY __qi__) AS k
) AS numbered
