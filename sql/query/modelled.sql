-- modelled: what a model of the release believes of the records and values that meet a question, per group.
--   columns   the groups; with s_r the belief that record r has one of the values and t_r its amount: known records, n = sum s,
--             a = sum s t, nn = sum s (1 - s), na = sum s t (1 - s), aa = sum s t^2 (1 - s), least and most of t; n and a of
--             every completed table
--   reads     __records__, __weights__(record, code, weight), __values__
--   holes     __qi_terms__, __sa_terms__: terms of the condition and groups, named;  __qi_filter__, __sa_filter__: parts of
--             the condition on one side alone;  __predicate__: the rest, over the terms;  __groups__: the groups' names;
--             __record__: the column with the number of a record;  __amount__: t, 1 for a count;  __code__: a column as it lies;
--             __drawn__: sums of columns that say whether r has v in a completed table;  __sums__: their n and a
WITH chosen AS (
  SELECT __record__ AS record, __qi_terms__, __amount__ AS t
  FROM __records__
  WHERE __qi_filter__
), valued AS (
  SELECT __code__ AS code, __sa_terms__
  FROM __values__
  WHERE __sa_filter__
), met AS (
  SELECT __groups__, w.record, t, sum(w.weight) AS s, __drawn__
  FROM chosen
  JOIN __weights__ AS w ON w.record = chosen.record
  JOIN valued ON w.code = valued.code
  WHERE __predicate__
  GROUP BY __groups__, w.record, t
)
SELECT __groups__, count(t) AS known, sum(CASE WHEN t IS NULL THEN 0 ELSE s END) AS n, sum(s * t) AS a,
  sum(CASE WHEN t IS NULL THEN 0 ELSE s * (1 - s) END) AS nn, sum(s * t * (1 - s)) AS na, sum(s * t * t * (1 - s)) AS aa,
  min(t) AS least, max(t) AS most, __sums__
FROM met
GROUP BY __groups__
