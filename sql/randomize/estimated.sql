-- the release's own view of noisy tables: every record beside every value, with the weight of that.
--   columns   the quasi-identifiers, the sensitive column, weight
--   reads     __people__, __weights__(combination, code, weight), __values__
--   holes     __qi__, __sa__;  __combination__, __code__: columns as they lie;  __weight__: a name
SELECT __qi__, __sa__, weights.weight AS __weight__
FROM __people__ AS people
JOIN __weights__ AS weights ON __combination__ = weights.combination
JOIN __values__ AS listed ON weights.code = __code__
