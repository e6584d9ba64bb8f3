-- universe: the items of a table, in canonical order.
--   columns   code = 0, 1, .., item
--   reads     __given__;  hole __item__: the item in its own type
SELECT CAST(row_number() OVER (ORDER BY item) - 1 AS INTEGER) AS code, item
FROM (SELECT DISTINCT __item__ AS item FROM __given__) AS listed
WHERE item IS NOT NULL
ORDER BY code
