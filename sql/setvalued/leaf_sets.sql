-- leaf_sets: the sets of the tree's leaves with their noisy sizes, and the set without items with its own.
--   columns   items, count
--   reads     __sets__(part, items, weight), __tree__(part, node, size)
SELECT s.items, CASE WHEN t.part IS NULL THEN CAST(s.weight AS BIGINT) ELSE t.size END AS count
FROM __sets__ AS s
LEFT JOIN __tree__ AS t ON s.part = t.part
WHERE t.node IS NULL
