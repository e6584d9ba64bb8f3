-- privsql_sets: the different sets of synthetic records that fit what was measured, and how many records have each.
--   columns   items, weight
--   reads     __given__(items, weight)
SELECT items, weight
FROM __given__
ORDER BY items
