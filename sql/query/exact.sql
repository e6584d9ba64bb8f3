-- exact: a count without any condition or group on the sensitive columns, which QIT answers exactly.
--   columns   the groups, n
--   reads     __qit__
--   holes     __terms__: the groups, named;  __keys__: the same as expressions;  __filter__: the condition
SELECT __terms__, count(*) AS n
FROM __qit__
WHERE __filter__
GROUP BY __keys__
