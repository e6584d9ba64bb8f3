-- check: Definition 5, differences one way. Rows: records that a group has more than one that it overlaps, where these are not fine.
--   columns   own, other (groups), records (that own has more), values, low, high, id
--   reads     __joined__ (sql/against/joined.sql)
--   holes     __own__, __other__: a and b, or b and a;  __k__;  __narrow__: whether high - low < e
WITH pairs AS (
  SELECT __own__ AS own, __other__ AS other FROM __joined__ WHERE a IS NOT NULL AND b IS NOT NULL GROUP BY __own__, __other__
), members AS (
  SELECT __own__ AS own, __other__ AS other, id, value FROM __joined__ WHERE __own__ IS NOT NULL
), lefts AS (
  SELECT p.own, p.other, count(*) AS records, count(DISTINCT m.value) AS "values", min(m.value) AS low, max(m.value) AS high
  FROM pairs AS p
  JOIN members AS m ON p.own = m.own AND p.other IS DISTINCT FROM m.other
  GROUP BY p.own, p.other
)
SELECT lefts.own, lefts.other, lefts.records, lefts."values", lefts.low, lefts.high, m.id
FROM lefts
JOIN members AS m ON lefts.own = m.own AND lefts.other IS DISTINCT FROM m.other
WHERE coalesce("values" < __k__ OR __narrow__, TRUE)
ORDER BY lefts.own, lefts.other, m.id
