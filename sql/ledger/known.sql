-- known: which releases hold names of the source's.
--   columns   number, known (records of the release whose name is here)
--   reads     __subjects__(number, id, person): the records of releases;  __traces__(id, person): those of the source
--   holes     __among__: predicate for s.number;  __theirs__: s.id or s.person;  __ours__: t.id or t.person
SELECT s.number, count(*) AS known
FROM __subjects__ AS s
WHERE __among__ AND __theirs__ IN (SELECT __ours__ FROM __traces__ AS t WHERE __ours__ IS NOT NULL)
GROUP BY s.number
ORDER BY s.number
