-- members: how many records meet the conditions on quasi-identifiers, per group.
--   columns   the groups, members
--   reads     __qit__
--   holes     __groups__: of quasi-identifiers, named;  __keys__: the same as expressions;  __filter__: the condition
SELECT __groups__, count(*) AS members
FROM __qit__
WHERE __filter__
GROUP BY __keys__
