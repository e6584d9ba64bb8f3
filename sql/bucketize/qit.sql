-- qit: the published quasi-identifier table.
--   columns   the quasi-identifiers, bid (bucket)
--   reads     __assigned__: the records (sql/core/coded.sql) with the bucket that the layout gives each
--             (below 0: left out; NULL: a fault, which the checks find)
--   holes     __qi__: q0.. under their own names and types;  __bid__: a name;  __qi_order__: q0..
--   source    Wang et al., section 3.1 (QIT); Xiao & Tao 2006
SELECT __qi__, r.bid AS __bid__
FROM __assigned__ AS r
WHERE r.bid IS NULL OR r.bid >= 0
ORDER BY r.bid, __qi_order__ NULLS LAST
