-- chosen_values: the sensitive values that a condition lets through, with its terms and the groups evaluated on each.
--   columns   code, the terms and groups
--   reads     __values__(code, the sensitive columns)
--   holes     __code__: the column as it lies;  __terms__: named;  __filter__: the part of the condition on sensitive columns alone
SELECT __code__ AS code, __terms__
FROM __values__
WHERE __filter__
ORDER BY __code__
