-- paths: the parts of a noisy tree, parents first.
--   columns   part, parent (NULL for the root), scale of its noise (NULL where it was not counted), choice (budget of
--             choosing how it is divided, NULL where nothing was chosen), leaf
--   reads     __tree__(part, parent, scale, choice, node, ..): privsql_tree
SELECT part, parent, scale, choice, node IS NULL AS leaf
FROM __tree__
ORDER BY part
