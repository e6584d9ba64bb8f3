-- the view NAME_pairs: every record beside every value that its bucket lists, with the value's share of the list.
--   columns   the quasi-identifiers, the sensitive columns, weight = count(g, x) / (listed values of g)
--   reads     __qit__, __st__
--   holes     __qi__, __sa__;  __size__: how many values g lists, as an expression in st.bid;  __count__, __qit_bid__,
--             __st_bid__: columns as they lie;  __weight__: a name
--   why       no JOIN: files that DuckDB 1.1 reads lose the parentheses that it writes around one
--   source    Xiao & Tao 2006: est = sum_g c_QIT(g, cond) * c_ST(g, X) / |g|
SELECT __qi__, __sa__, CAST(__count__ AS DOUBLE) / __size__ AS __weight__
FROM __qit__ AS qit, __st__ AS st
WHERE __qit_bid__ = __st_bid__
