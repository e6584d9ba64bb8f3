-- check: closure. Rows: the records of atoms of the common refinement of all releases that are not fine.
--   columns   records (of the atom), values, low, high, id
--   reads     __atoms__(id, atom), __known__(id, value);  holes __k__;  __narrow__: whether high - low < e
WITH cells AS (
  SELECT t.atom, count(*) AS records, count(DISTINCT k.value) AS "values", min(k.value) AS low, max(k.value) AS high
  FROM __atoms__ AS t
  JOIN __known__ AS k ON t.id = k.id
  GROUP BY t.atom
)
SELECT cells.records, cells."values", cells.low, cells.high, t.id
FROM cells
JOIN __atoms__ AS t ON cells.atom = t.atom
WHERE coalesce("values" < __k__ OR __narrow__, TRUE)
ORDER BY cells.atom, t.id
