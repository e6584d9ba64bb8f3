-- cells: the noisy contingency table, in canonical order.
--   columns   part (of privsql_tree), the columns, count
--   reads     __given__(part, s0.., count)
--   holes     __columns__: g.s0.. under their own names;  __part__, __count__: names;  __order__: g.s0.., g.part
--   source    Chen et al. 2011, algorithm 1 with appendix D: the sanitized data
SELECT g.part AS __part__, __columns__, g.count AS __count__
FROM __given__ AS g
ORDER BY __order__
