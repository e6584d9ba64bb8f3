-- unknown: items of the source that are not in the universe.
--   columns   item (text), sets in which it is
--   reads     __apart__(basket, item), __universe__(code, item)
--   holes     __item__: a.item as text
SELECT __item__ AS item, count(*) AS sets
FROM __apart__ AS a
LEFT JOIN __universe__ AS u ON a.item = u.item
WHERE u.code IS NULL
GROUP BY a.item
ORDER BY a.item
