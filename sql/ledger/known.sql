-- known: which releases hold names of the source's.
--   columns   number, known (names that are in both)
--   reads     __names__(number, kind, name): keyed hashes of the names of releases;  __ours__(kind, name): the source's
--   holes     __among__: predicate for s.number;  __their_kind__, __our_kind__: ids or persons
SELECT s.number, count(*) AS known
FROM __names__ AS s
WHERE __among__ AND s.kind = __their_kind__ AND s.name IN (SELECT o.name FROM __ours__ AS o WHERE o.kind = __our_kind__)
GROUP BY s.number
ORDER BY s.number
