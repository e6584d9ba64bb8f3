-- joined: the groups of every record in two releases, with its sensitive value.
--   columns   id, value, a, b (NULL where it is not in the release)
--   reads     __first__(id, bid), __second__(id, bid), __known__(id, value)
SELECT k.id, k.value, x.bid AS a, y.bid AS b
FROM __known__ AS k
LEFT JOIN __first__ AS x ON k.id = x.id
LEFT JOIN __second__ AS y ON k.id = y.id
WHERE x.id IS NOT NULL OR y.id IS NOT NULL
