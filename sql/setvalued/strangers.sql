-- check: every leaf has one set, and other sets stand for parts that were expanded. Rows: parts where it is otherwise.
--   columns   part, sets, weight
--   reads     __sets__(part, items, weight), __tree__(part, node): NULL where it is a leaf
SELECT coalesce(t.part, s.part) AS part, s.sets, s.weight
FROM __tree__ AS t
FULL JOIN (
  SELECT part, count(*) AS sets, sum(weight) AS weight
  FROM __sets__
  GROUP BY part
) AS s ON t.part = s.part
WHERE (t.part IS NULL AND coalesce(s.part <> -1 OR s.sets > 1, TRUE)) OR (t.node IS NULL AND t.part IS NOT NULL AND s.sets IS DISTINCT FROM 1)
