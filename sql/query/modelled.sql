-- modelled: what a model of the release believes of the records and values that meet a question, per group.
--   columns   the groups; with s_r the belief that record r has one of the values: n = sum s, nn = sum s (1 - s); the number of
--             such records in every completed table
--   reads     __records__, __weights__(record, code, weight), __completed__(record, and columns of codes), __values__
--   holes     __qi_terms__, __sa_terms__: terms of the condition and groups, named;  __qi_filter__, __sa_filter__: parts of
--             the condition on one side alone;  __predicate__: the rest, over the terms;  __groups__: the groups' names;
--             __record__: the column with the number of a record;  __code__: a column as it lies;  __drawn__: how often the
--             value of c is that of w, for every completed table, named;  __sums__: their sums
WITH chosen AS (
  SELECT __record__ AS record, __qi_terms__
  FROM __records__
  WHERE __qi_filter__
), valued AS (
  SELECT __code__ AS code, __sa_terms__
  FROM __values__
  WHERE __sa_filter__
), met AS (
  SELECT __groups__, w.record, sum(w.weight) AS s, __drawn__
  FROM chosen
  JOIN __weights__ AS w ON w.record = chosen.record
  JOIN __completed__ AS c ON c.record = chosen.record
  JOIN valued ON w.code = valued.code
  WHERE __predicate__
  GROUP BY __groups__, w.record
)
SELECT __groups__, sum(s) AS n, sum(s * (1 - s)) AS nn, __sums__
FROM met
GROUP BY __groups__
