-- placed: the records of some buckets.
--   columns   bid, the quasi-identifiers
--   reads     __qit__
--   holes     __bid__: the column as it lies;  __columns__: the quasi-identifiers;  __filter__: which buckets
SELECT __bid__ AS bid, __columns__
FROM __qit__
WHERE __filter__
