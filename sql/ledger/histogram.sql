-- histogram: how often the values of a column stand in a source, whatever they are.
--   columns   times, kinds (values that stand so many times), digest (sum over their records: the same whatever the order)
--   reads     __source__
--   holes     __value__: the column's value as an expression;  __digest__: that of column value;  __keep__: predicate of
--             the NULL policy
SELECT
  records AS times,
  count(*) AS kinds,
  sum(CAST(__digest__ AS DECIMAL(19, 0)) * CAST(records AS DECIMAL(19, 0))) AS digest
FROM (SELECT value, count(*) AS records FROM (SELECT __value__ AS value FROM __source__ WHERE __keep__) AS read GROUP BY value) AS counted
GROUP BY records
