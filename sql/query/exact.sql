-- exact: an answer without any condition or group on the sensitive columns, which QIT holds exactly.
--   columns   the groups, and what is asked for
--   reads     __qit__
--   holes     __terms__: the groups, named;  __keys__: the same as expressions;  __filter__: the condition;
--             __measure__: aggregate functions, named
SELECT __terms__, __measure__
FROM __qit__
WHERE __filter__
GROUP BY __keys__
