-- the view NAME_weighted: every record beside every sensitive value, once for each value that its bucket lists; weights
-- of a record add up to 1, and sums of weights estimate counts.
--   columns   the quasi-identifiers, the sensitive columns, weight = count(g, x) / (listed values of g) * weight of (x, v)
--   reads     __qit__, __st__, __values__, __estimator__(listed, value, weight)
--   holes     __qi__: of qit, __sa__: of named;  __size__: how many values g lists, as an expression in st.bid;  __count__,
--             __qit_bid__, __st_bid__, __listed_code__, __named_code__: columns as they lie;  __same_value__: NULL-safe
--             equality of st and listed;  __weight__: a name
--   why       no JOIN: files that DuckDB 1.1 reads lose the parentheses that it writes around one
SELECT __qi__, __sa__, CAST(__count__ AS DOUBLE) / __size__ * estimator.weight AS __weight__
FROM __qit__ AS qit, __st__ AS st, __values__ AS listed, __estimator__ AS estimator, __values__ AS named
WHERE __qit_bid__ = __st_bid__
  AND __same_value__
  AND __listed_code__ = estimator.listed
  AND estimator.value = __named_code__
