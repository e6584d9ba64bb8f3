-- moments: count, sums and range of a quasi-identifier over the records that meet a condition, per group; NULL is none.
--   columns   the groups, n, total, squares, least, most
--   reads     __qit__
--   holes     __terms__: the groups, named;  __keys__: the same as expressions;  __filter__: the condition;
--             __amount__: the column as DOUBLE
SELECT
  __terms__,
  count(__amount__) AS n,
  coalesce(sum(__amount__), 0) AS total,
  coalesce(sum(__amount__ * __amount__), 0) AS squares,
  min(__amount__) AS least,
  max(__amount__) AS most
FROM __qit__
WHERE __filter__
GROUP BY __keys__
