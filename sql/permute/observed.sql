-- observed: how many records of every group meet a condition on quasi-identifiers, per group of the question.
--   columns   set (rank of the question's group), its columns, place = bid, pairs = records, and amounts where asked for
--   reads     __qit__
--   holes     __bid__: the column as it lies;  __terms__: groups and terms of the condition, named;  __keys__: the same as expressions;
--             __filter__: the condition on QIT;  __totals__: sum(..) AS amounts or nothing;  __groups__: the groups' names;
--             __amounts__: amounts or nothing
SELECT dense_rank() OVER (ORDER BY __groups__) - 1 AS set, __groups__, bid AS place, pairs, __amounts__
FROM (
  SELECT __bid__ AS bid, __terms__, count(*) AS pairs, __totals__
  FROM __qit__
  WHERE __filter__
  GROUP BY __bid__, __keys__
) AS counted
