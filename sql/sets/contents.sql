-- contents: the items of each set by their codes, in order.
--   columns   basket, code
--   reads     __apart__(basket, item), __universe__(code, item)
SELECT a.basket, u.code
FROM __apart__ AS a
JOIN __universe__ AS u ON a.item = u.item
ORDER BY a.basket, u.code
