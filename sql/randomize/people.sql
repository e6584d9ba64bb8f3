-- people: the quasi-identifiers of every record, and nothing that depends on its value.
--   columns   the quasi-identifiers, combination
--   reads     __combined__(q0.., combination) (sql/randomize/combined.sql)
--   holes     __columns__: q0.. as they are published;  __combination__: a name
SELECT __columns__, CAST(r.combination AS INTEGER) AS __combination__
FROM __combined__ AS r
ORDER BY r.combination
