-- marked: the marks of a release in a ledger.
--   columns   name, field, mark
--   reads     __marks__(number, kind, name, field, mark);  holes __number__, __kind__ (ids or persons)
SELECT m.name, m.field, m.mark
FROM __marks__ AS m
WHERE m.number = __number__ AND m.kind = __kind__
