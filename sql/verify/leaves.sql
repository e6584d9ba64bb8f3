-- check: every leaf of a tree is published, and nothing else, with its noisy size. Rows: parts where it is otherwise.
--   columns   part, count, size
--   reads     __leaves__(part, count), __tree__(part, node, size)
SELECT coalesce(l.part, t.part) AS part, l.count, t.size
FROM __leaves__ AS l
FULL JOIN (SELECT part, size FROM __tree__ WHERE node IS NULL) AS t ON l.part = t.part
WHERE l.part IS NULL OR t.part IS NULL OR l.count IS DISTINCT FROM t.size
