-- cells: which sensitive values count for which set of records, where a condition mixes both sides.
--   columns   set, code
--   reads     __sets__(set, q_0..), __chosen__(code, s_0..) (sql/query/chosen_values.sql)
--   holes     __predicate__: the condition over the terms
SELECT set, code
FROM __sets__
CROSS JOIN __chosen__
WHERE __predicate__
ORDER BY set, code
