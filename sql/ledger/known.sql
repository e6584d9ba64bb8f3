-- known: how many names releases have, and how many of them are the source's.
--   columns   number, names, known
--   reads     __names__(number, kind, name): keyed hashes of the names of releases;  __ours__(kind, name): the source's
--   holes     __among__: predicate for s.number;  __their_kind__, __our_kind__: ids or persons
SELECT s.number, count(*) AS names, count(o.name) AS known
FROM __names__ AS s
LEFT JOIN (SELECT name FROM __ours__ WHERE kind = __our_kind__) AS o ON s.name = o.name
WHERE __among__ AND s.kind = __their_kind__
GROUP BY s.number
ORDER BY s.number
