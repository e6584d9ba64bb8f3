-- paths: the parts of a noisy tree, parents first.
--   columns   part, parent (NULL for the root), scale of its noise (NULL where it was not counted), choice (budget of
--             choosing how it is divided, NULL where nothing was chosen), leaf
--   reads     __tree__(part, parent, scale, ..): privsql_tree
--   needs     __leaf__: whether a part is a leaf; __choice__: the column of choices, or NULL
SELECT part, parent, scale, __choice__ AS choice, __leaf__ AS leaf
FROM __tree__
WHERE part >= 0
ORDER BY part
