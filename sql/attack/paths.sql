-- paths: the parts of a noisy tree, parents first.
--   columns   part, parent (NULL for the root), scale of its noise (NULL where it was not counted), leaf
--   reads     __tree__(part, parent, scale, node, ..): privsql_tree
SELECT part, parent, scale, node IS NULL AS leaf
FROM __tree__
WHERE part >= 0
ORDER BY part
