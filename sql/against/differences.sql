-- check: Definition 5 on what is published. Rows: pairs of groups whose difference or intersection is not fine.
--   columns   breach, earlier_group, later_group, records, values, low, high
--   reads     __pairs__(a, b), __first_st__, __second_st__(bid, s0, count)
--   holes     __value__: s0;  __k__;  __narrow__: whether high - low < e
--   source    thesis, Definition 5; multiset differences of the sensitive values
WITH held AS (
  SELECT a, b, value, sum(own) AS own, sum(other) AS other
  FROM (
    SELECT p.a, p.b, __value__ AS value, s."count" AS own, 0 AS other FROM __pairs__ AS p JOIN __first_st__ AS s ON p.a = s.bid
    UNION ALL
    SELECT p.a, p.b, __value__ AS value, 0 AS own, s."count" AS other FROM __pairs__ AS p JOIN __second_st__ AS s ON p.b = s.bid
  ) AS sides
  GROUP BY a, b, value
), pieces AS (
  SELECT 'earlier minus later' AS kind, a, b, value, own - other AS n FROM held WHERE coalesce(own > other, TRUE)
  UNION ALL
  SELECT 'later minus earlier' AS kind, a, b, value, other - own AS n FROM held WHERE coalesce(other > own, TRUE)
  UNION ALL
  SELECT 'intersection' AS kind, a, b, value, least(own, other) AS n FROM held WHERE least(own, other) > 0
)
SELECT kind AS breach, a AS earlier_group, b AS later_group, records, "values", low, high
FROM (
  SELECT kind, a, b, sum(n) AS records, count(*) AS "values", min(value) AS low, max(value) AS high
  FROM pieces
  GROUP BY kind, a, b
) AS summed
WHERE coalesce("values" < __k__ OR __narrow__, TRUE)
ORDER BY kind, a, b
