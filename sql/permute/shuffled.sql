-- the release's own view: the shuffled single table. Sums of the weight are counts.
--   columns   the quasi-identifiers, the sensitive column, weight = 1
--   reads     __qit__, __values__;  holes __qi__, __sa__: under their own names;  __qit_code__, __listed_code__: columns as
--             they lie;  __weight__: a name
--   why       no JOIN: files that DuckDB 1.1 reads lose the parentheses that it writes around one
--   source    Zhang, Koudas, Srivastava, Yu 2007
SELECT __qi__, __sa__, CAST(1 AS DOUBLE) AS __weight__
FROM __qit__ AS qit, __values__ AS listed
WHERE __qit_code__ = __listed_code__
