-- met: the cells that meet a condition, with their groups.
--   columns   g_0.., part, count
--   reads     __cells__(part, the columns, count)
--   holes     __terms__: expressions named g_0..;  __condition__: over the columns;  __part__, __count__: the columns as
--             they lie
SELECT __terms__, __part__ AS part, __count__ AS count
FROM __cells__
WHERE __condition__
