-- pairs: the sums that the baseline estimate and its certain bounds need, per bucket size and group.
--   columns   size, the groups, pairs = sum n e, certain = sum max(0, n + c - size - fakes), possible = sum min(n, c)
--   reads     __qit__, __st__
--   holes     __qi_terms__, __sa_terms__: terms of the condition and groups, named;  __qi_keys__, __sa_keys__: the same
--             as expressions;  __qi_filter__, __sa_filter__: parts of the condition on one side alone;
--             __predicate__: the rest, over the terms;  __size__: |g| in s.bid;  __groups__: the groups' names;
--             __qit_bid__, __st_bid__, __count__: columns as they lie;  __expected__: records that a
--             bucket has of a value on average, which is __count__ where no value is fake;  __fakes__: listed values of a bucket that are not real
--   source    Xiao & Tao 2006: est = sum_g c_QIT(g, cond) * c_ST(g, X) / |g|; the bounds are Frechet's per bucket
WITH q AS (
  SELECT __qit_bid__ AS bid, __qi_terms__, count(*) AS n
  FROM __qit__
  WHERE __qi_filter__
  GROUP BY __qit_bid__, __qi_keys__
), s AS (
  SELECT __st_bid__ AS bid, __sa_terms__, sum(__count__) AS c, sum(__expected__) AS e
  FROM __st__
  WHERE __sa_filter__
  GROUP BY __st_bid__, __sa_keys__
)
SELECT size, __groups__, sum(n * e) AS pairs, sum(greatest(n + c - size - __fakes__, 0)) AS certain, sum(least(n, c)) AS possible
FROM (
  SELECT __size__ AS size, __groups__, n, c, e
  FROM q
  JOIN s ON q.bid = s.bid
  WHERE __predicate__
) AS matched
GROUP BY size, __groups__
