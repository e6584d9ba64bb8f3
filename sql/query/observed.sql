-- observed: what the channel passes on of the records that meet a condition, per group.
--   columns   set (rank of the group), the groups, place (code of the value), size, pairs = sum n c, and amounts = sum t c where asked for;
--             e = pairs / size summed over sizes: E[e] = M^T n
--   reads     __qit__, __st__(bid, s0.., count), __values__(code, s0..)
--   holes     __bid__: the column as it lies;  __terms__: groups and terms of the condition, named;  __keys__: the same as expressions;  __filter__: the
--             condition on QIT;  __totals__: sum(..) AS amounts or nothing;  __amounts__: sum(q.amounts * s.count) AS amounts or nothing;
--             __amount__: amounts or nothing;  __groups__: the groups' names;  __sa__: s.s0..;  __size__: |g| in s.bid;
--             __same_value__: NULL-safe equality of sums and v
WITH q AS (
  SELECT __bid__ AS bid, __terms__, count(*) AS n, __totals__
  FROM __qit__
  WHERE __filter__
  GROUP BY __bid__, __keys__
), sums AS (
  SELECT __groups__, __size__ AS size, __sa__, sum(q.n * s."count") AS pairs, __amounts__
  FROM q
  JOIN __st__ AS s ON q.bid = s.bid
  GROUP BY __groups__, __size__, __sa__
)
SELECT dense_rank() OVER (ORDER BY __groups__) - 1 AS set, __groups__, v.code AS place, sums.size, sums.pairs, __amount__
FROM sums
JOIN __values__ AS v ON __same_value__
