-- privsql_chosen: the items of views, by place.
--   columns   place, item
--   reads     __given__(place, code), __universe__(code, item)
SELECT g.place, u.item
FROM __given__ AS g
JOIN __universe__ AS u ON g.code = u.code
ORDER BY g.place
