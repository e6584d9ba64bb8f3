-- cells: the noisy contingency table, in canonical order.
--   columns   the columns, count
--   reads     __given__(s0.., count)
--   holes     __columns__: g.s0.. under their own names;  __count__: a name;  __order__: g.s0..
--   source    Chen et al. 2011, algorithm 1 with appendix D: the sanitized data
SELECT __columns__, g.count AS __count__
FROM __given__ AS g
ORDER BY __order__
