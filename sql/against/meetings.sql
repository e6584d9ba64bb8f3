-- check: Definition 5, intersections. Rows: records that lie in two groups whose common records are not fine.
--   columns   earlier_group, later_group, records (in both), values, low, high, id
--   reads     __joined__ (sql/against/joined.sql);  holes __k__;  __narrow__: whether high - low < e
WITH met AS (
  SELECT a, b, count(*) AS records, count(DISTINCT value) AS "values", min(value) AS low, max(value) AS high
  FROM __joined__
  WHERE a IS NOT NULL AND b IS NOT NULL
  GROUP BY a, b
)
SELECT met.a AS earlier_group, met.b AS later_group, met.records, met."values", met.low, met.high, j.id
FROM met
JOIN __joined__ AS j ON met.a = j.a AND met.b = j.b
WHERE coalesce("values" < __k__ OR __narrow__, TRUE)
ORDER BY met.a, met.b, j.id
