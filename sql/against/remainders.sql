-- check: what is left of a group when all groups of an earlier release that it holds are taken away. Rows: what is not fine.
--   columns   later_group, taken (groups), records, values, low, high
--   reads     __shared__ (sql/against/shared.sql), __first_st__, __second_st__(bid, s0, count)
--   holes     __value__: s0;  __k__;  __narrow__: whether high - low < e
WITH inside AS (
  SELECT a, max(b) AS b FROM __shared__ WHERE shared = size_a AND alike = size_a GROUP BY a
), held AS (
  SELECT b, value, sum(n) AS n
  FROM (
    SELECT s.bid AS b, __value__ AS value, s."count" AS n FROM __second_st__ AS s
    UNION ALL
    SELECT i.b, __value__ AS value, -s."count" AS n FROM inside AS i JOIN __first_st__ AS s ON i.a = s.bid
  ) AS sides
  GROUP BY b, value
)
SELECT left_over.b AS later_group, t.taken, left_over.records, left_over."values", left_over.low, left_over.high
FROM (
  SELECT b, sum(n) AS records, count(*) AS "values", min(value) AS low, max(value) AS high
  FROM held
  WHERE coalesce(n > 0, TRUE)
  GROUP BY b
) AS left_over
JOIN (SELECT b, count(*) AS taken FROM inside GROUP BY b) AS t ON left_over.b = t.b
WHERE coalesce(left_over."values" < __k__ OR __narrow__, TRUE)
ORDER BY left_over.b
