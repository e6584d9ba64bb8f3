-- the view NAME_weighted: every record beside every sensitive value. Weights of a record add up to 1, and sums of weights
-- estimate counts. Sums of the variances of one value are the variance of that, before the factor of sql/clients/left.sql.
--   columns   the quasi-identifiers, the sensitive columns, weight = sum over x of count(g, x) / (listed values of g) *
--             weight of (x, v), variance = (deviation of v)^2
--   reads     __qit__, __st__, __values__, __estimator__(listed, value, weight)
--   holes     __qi__: of qit, __sa__: of named;  __size__: how many values g lists, as an expression in st.bid;  __count__,
--             __qit_bid__, __st_bid__, __listed_code__, __named_code__, __deviation__: columns as they lie;  __same_value__:
--             NULL-safe equality of st and listed;  __weight__, __variance__: names
--   why       the records of a bucket share their weights, so buckets are summed before records are joined; no JOIN: files
--             that DuckDB 1.1 reads lose the parentheses that it writes around one
SELECT __qi__, __sa__, sums.weight AS __weight__, __deviation__ * __deviation__ AS __variance__
FROM
  __qit__ AS qit,
  (
    SELECT __st_bid__ AS bid, estimator.value, sum(CAST(__count__ AS DOUBLE) / __size__ * estimator.weight) AS weight
    FROM __st__ AS st, __values__ AS listed, __estimator__ AS estimator
    WHERE __same_value__
      AND __listed_code__ = estimator.listed
    GROUP BY __st_bid__, estimator.value
  ) AS sums,
  __values__ AS named
WHERE __qit_bid__ = sums.bid
  AND sums.value = __named_code__
