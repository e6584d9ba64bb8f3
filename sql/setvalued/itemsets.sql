-- itemsets: the published item sets with their noisy counts, in canonical order.
--   columns   items, count
--   reads     __given__(items, count)
--   source    Chen et al. 2011, algorithm 1: the sanitized data
SELECT items, count
FROM __given__
ORDER BY items
