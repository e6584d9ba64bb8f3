-- combinations: the different combinations of quasi-identifiers, and how many records have each.
--   columns   combination, q0.., records
--   reads     __people__(the quasi-identifiers, combination)
--   holes     __columns__: the quasi-identifiers named q0..;  __keys__: q0..;  __combination__: the column as it lies
SELECT combination, __keys__, count(*) AS records
FROM (SELECT __columns__, __combination__ AS combination FROM __people__) AS r
GROUP BY combination, __keys__
ORDER BY combination, __keys__
