-- cells: the noisy contingency table, in canonical order.
--   columns   the columns, count
--   reads     __given__: the same;  holes __columns__, __order__: the columns
--   source    Chen et al. 2011, algorithm 1 with appendix D: the sanitized data
SELECT __columns__, count
FROM __given__
ORDER BY __order__
