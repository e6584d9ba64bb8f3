-- moments: count, sums and range of a quasi-identifier over the records that meet a condition, per group.
--   columns   the groups, n, total, squares, least, most
--   reads     __qit__
--   holes     __terms__: the groups, named;  __keys__: the same as expressions;  __filter__: the condition;
--             __amount__: the column as DOUBLE
SELECT
  __terms__,
  count(*) AS n,
  sum(__amount__) AS total,
  sum(__amount__ * __amount__) AS squares,
  min(__amount__) AS least,
  max(__amount__) AS most
FROM __qit__
WHERE __filter__
GROUP BY __keys__
