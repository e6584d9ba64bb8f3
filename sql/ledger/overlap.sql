-- overlap: how many of the ids are in an earlier release.
--   columns   known
--   reads     __ours__(kind, name): keyed hashes of the source's names;  __names__(number, kind, name): those of releases
--   holes     __among__: predicate for s.number
SELECT count(*) AS known
FROM __ours__ AS o
WHERE o.kind = 'ids' AND o.name IN (SELECT s.name FROM __names__ AS s WHERE s.kind = 'ids' AND __among__)
