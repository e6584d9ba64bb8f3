-- qit: the quasi-identifiers with their group, and the value that the shuffle deals to each record.
--   columns   the quasi-identifiers, bid (group), code (of privsql_values)
--   reads     __dealt__: the records (sql/core/records.sql) with bid and code; bid is negative where a record is held back
--   holes     __qi__: q0.. under their own names;  __bid__, __code__: names;  __qi_order__: q0..
--   source    Zhang, Koudas, Srivastava, Yu 2007: sensitive values are permuted at random within each group. The code is
--             that permutation, so that with privsql_values it makes the shuffled single table.
SELECT __qi__, r.bid AS __bid__, r.code AS __code__
FROM __dealt__ AS r
WHERE r.bid >= 0
ORDER BY r.bid, __qi_order__ NULLS LAST, r.code
