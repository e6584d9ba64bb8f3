-- itemsets: the published item sets with their noisy counts, in canonical order.
--   columns   part (of privsql_tree), items, count
--   reads     __given__(part, items, count)
--   source    Chen et al. 2011, algorithm 1: the sanitized data
SELECT part, items, count
FROM __given__
ORDER BY items
