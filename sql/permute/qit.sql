-- qit: the quasi-identifiers with their group, and the value that the shuffle deals to each record.
--   columns   the quasi-identifiers, bid (group), code (of privsql_values)
--   reads     __dealt__: the records (sql/core/records.sql) with bid and code; bid is negative where a record is held back
--   holes     __qi__: q0.. under their own names;  __qi_order__: q0..
--   source    Zhang, Koudas, Srivastava, Yu 2007: sensitive values are permuted at random within each group. The code is
--             that permutation, so that with privsql_values it makes the shuffled single table.
SELECT __qi__, bid, code
FROM __dealt__ AS r
WHERE bid >= 0
ORDER BY bid, __qi_order__ NULLS LAST, code
