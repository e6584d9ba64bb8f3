-- modelled: what a model of the release believes of the records and values that meet a question, per group.
--   columns   the groups; with w the belief that a record has one of the values: n = sum w, nn = sum w (1 - w); drawn_0, ..: how
--             many records have such a value in each completed table
--   reads     __records__, __weights__(record, code, weight), __completed__(record, and codes drawn_0, ..), __values__
--   holes     __qi_terms__, __sa_terms__: terms of the condition and groups, named;  __qi_filter__, __sa_filter__: parts of
--             the condition on one side alone;  __predicate__: the rest, over the terms;  __groups__: the groups' names;
--             __record__: the column with the number of a record;  __code__: a column as it lies
--   why       COLUMNS stands for all completed tables; written out, they would take longer to parse than to count
WITH chosen AS (
  SELECT __record__ AS record, __qi_terms__
  FROM __records__
  WHERE __qi_filter__
), valued AS (
  SELECT __code__ AS code, __sa_terms__
  FROM __values__
  WHERE __sa_filter__
)
SELECT __groups__, sum(w.weight) AS n, sum(w.weight * (1 - w.weight)) AS nn,
  count_if(COLUMNS('^drawn_[0-9]+$') = w.code) AS '\0'
FROM chosen
JOIN __weights__ AS w ON w.record = chosen.record
JOIN __completed__ AS c ON c.record = chosen.record
JOIN valued ON w.code = valued.code
WHERE __predicate__
GROUP BY __groups__
