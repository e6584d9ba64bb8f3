-- excluded: the values that a negative association excludes for some record of a bucket.
--   columns   bid, code
--   reads     __qit__, __negative__(value, code): records with the value hardly ever have the sensitive value
--   holes     __column__: the quasi-identifier, of q;  __bid__: the column as it lies, of q
--   source    Wang et al., section 6: a fake value should not be easily excluded for any record of its bucket
SELECT DISTINCT __bid__ AS bid, n.code
FROM __qit__ AS q
JOIN __negative__ AS n ON n.value IS NOT DISTINCT FROM __column__
