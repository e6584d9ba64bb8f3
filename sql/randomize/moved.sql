-- moved: the records with their sensitive values perturbed, where these have been moved already.
--   columns   the quasi-identifiers, the sensitive columns, sub_table
--   reads     __assigned__(q0.., s0.., bid, code): the records with the moved value and the sub-table of each
--   holes     __qi__, __sa__: r.q0.., r.s0.. under their own names and types;  __qi_order__: r.q0..;
--             __sub_table__: a name
SELECT __qi__, __sa__, r.bid AS __sub_table__
FROM __assigned__ AS r
ORDER BY r.bid, __qi_order__ NULLS LAST, r.code
