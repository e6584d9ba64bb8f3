-- privsql_sets: the different sets of synthetic records that fit what was measured, and how many records have each.
--   columns   the items under the publisher's name, weight
--   reads     __given__(items, weight)
--   holes     __items__, __weight__: names
SELECT g.items AS __items__, g.weight AS __weight__
FROM __given__ AS g
ORDER BY g.items
