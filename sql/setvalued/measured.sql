-- privsql_chosen: the items that were measured, in the order of their choice.
--   columns   place, item, budget (of choosing it; NULL where that was public), scale (of the choice's noise)
--   reads     __given__(place, code, budget, scale), __universe__(code, item)
SELECT g.place, u.item, g.budget, g.scale
FROM __given__ AS g
JOIN __universe__ AS u ON g.code = u.code
ORDER BY g.place
