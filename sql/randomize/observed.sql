-- observed: the perturbed values of the records that meet a condition, per group and sub-table.
--   columns   set (rank of the group), the groups, place = cell (sub-table and perturbed value), pairs = records there,
--             and amounts where asked for
--   reads     __perturbed__(q0.. under their own names, s0.., sub_table), __cells__(cell, sub_table, s0..)
--   holes     __part__: the column sub_table as it lies;  __terms__: groups and terms of the condition, named;
--             __keys__: the same as expressions;  __filter__: the condition on quasi-identifiers;  __sa__, __sa_keys__: the sensitive columns, named s0.. and as they are;
--             __totals__: sum(..) AS amounts or nothing;  __amounts__: amounts or nothing;  __groups__: the groups'
--             names;  __same_value__: NULL-safe equality of q and c
WITH q AS (
  SELECT __part__ AS sub_table, __sa__, __terms__, count(*) AS n, __totals__
  FROM __perturbed__
  WHERE __filter__
  GROUP BY __part__, __sa_keys__, __keys__
)
SELECT dense_rank() OVER (ORDER BY __groups__) - 1 AS set, __groups__, c.cell AS place, q.n AS pairs, __amounts__
FROM q
JOIN __cells__ AS c ON q.sub_table = c.sub_table AND __same_value__
