-- placed: the records of some buckets, or that meet a condition.
--   columns   bid, the quasi-identifiers, or the groups and terms of the condition
--   reads     __qit__
--   holes     __bid__: the column as it lies;  __columns__: the quasi-identifiers, or groups and terms, named;  __filter__: which buckets or
--             records
SELECT __bid__ AS bid, __columns__
FROM __qit__
WHERE __filter__
