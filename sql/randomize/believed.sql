-- believed: what the weights of combinations say of the records and values that meet a question, per group.
--   columns   the groups; with s the weight of a record in the values and t its amount: known records, n = sum s, a = sum s t,
--             nn = sum s (1 - s), na = sum s t (1 - s), aa = sum s t^2 (1 - s), least and most of t; n and a by every draw
--   reads     __people__, __weights__(combination, code, weight, and a weight by each draw), __values__
--   holes     __qi_terms__, __sa_terms__: terms of the condition and groups, named;  __names__: the names of __qi_terms__;
--             __qi_filter__, __sa_filter__: parts of the condition on one side alone;  __predicate__: the rest, over the
--             terms;  __groups__: the groups' names;  __combination__, __code__: columns as they lie;  __amount__: t;
--             __drawn__: sums of the weights by draws, named;  __sums__: their n and a
WITH chosen AS (
  SELECT combination, __names__, t, count(*) AS m
  FROM (SELECT __combination__ AS combination, __qi_terms__, __amount__ AS t FROM __people__ WHERE __qi_filter__) AS r
  GROUP BY combination, __names__, t
), valued AS (
  SELECT __code__ AS code, __sa_terms__
  FROM __values__
  WHERE __sa_filter__
), met AS (
  SELECT __groups__, w.combination, t, m, sum(CAST(w.weight AS DOUBLE)) AS s, __drawn__
  FROM chosen
  JOIN __weights__ AS w ON w.combination = chosen.combination
  JOIN valued ON w.code = valued.code
  WHERE __predicate__
  GROUP BY __groups__, w.combination, t, m
)
SELECT __groups__, sum(CASE WHEN t IS NULL THEN 0 ELSE m END) AS known, sum(CASE WHEN t IS NULL THEN 0 ELSE m * s END) AS n,
  sum(m * s * t) AS a, sum(CASE WHEN t IS NULL THEN 0 ELSE m * s * (1 - s) END) AS nn, sum(m * s * t * (1 - s)) AS na,
  sum(m * s * t * t * (1 - s)) AS aa, min(t) AS least, max(t) AS most, __sums__
FROM met
GROUP BY __groups__
