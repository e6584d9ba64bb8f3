-- the release's own view of noisy tables: every record beside every value, with the weight of that.
--   columns   the quasi-identifiers, the sensitive column, weight
--   reads     __people__, __weights__(combination, code, weight), __values__
--   holes     __qi__, __sa__;  __combination__, __code__: columns as they lie;  __weight__: a name
--   why       no JOIN: files that DuckDB 1.1 reads lose the parentheses that it writes around one
SELECT __qi__, __sa__, weights.weight AS __weight__
FROM
  __people__ AS people,
  __weights__ AS weights,
  __values__ AS listed
WHERE __combination__ = weights.combination
  AND weights.code = __code__
