-- itemsets: the published item sets with their noisy counts, in canonical order.
--   columns   part (of privsql_tree), the items under the publisher's name, count
--   reads     __given__(part, items, count)
--   holes     __part__, __items__, __count__: names
--   source    Chen et al. 2011, algorithm 1: the sanitized data
SELECT g.part AS __part__, g.items AS __items__, g.count AS __count__
FROM __given__ AS g
ORDER BY g.items
