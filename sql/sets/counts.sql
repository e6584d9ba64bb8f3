-- counts: how many records have each item of the universe.
--   columns   records, items in order
--   reads     __baskets__(basket, items, records), __apart__(basket, item), __universe__(code, item)
SELECT CAST(coalesce(sum(b.records), 0) AS BIGINT) AS records
FROM __universe__ AS u
LEFT JOIN __apart__ AS a ON a.item = u.item
LEFT JOIN __baskets__ AS b ON b.basket = a.basket
GROUP BY u.code
ORDER BY u.code
