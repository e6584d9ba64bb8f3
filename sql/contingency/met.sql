-- met: of each part's cells those that meet a condition, by group.
--   columns   g_0.., part, met
--   reads     __cells__(part, the columns, weight)
--   holes     __terms__: expressions named g_0..;  __keys__: the same without names;  __condition__: over the columns;
--             __part__: the column as it lies
SELECT __terms__, __part__ AS part, count(*) AS met
FROM __cells__
WHERE __condition__
GROUP BY __keys__, __part__
