-- universe: the items of a public list, in its order.
--   columns   code = 0, 1, .., item
--   reads     __given__(code, item as text);  hole __item__: the item in its own type
SELECT CAST(code AS INTEGER) AS code, __item__ AS item
FROM __given__
ORDER BY code
