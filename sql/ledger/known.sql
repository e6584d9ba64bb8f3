-- known: which releases hold records with an id of the source's, and how many of these are what they were.
--   columns   number, known (records of the release whose id is here), same (those of them with the same trace)
--   reads     __subjects__(number, id, trace): the records of releases;  __traces__(id, trace): those of the source
--   holes     __among__: predicate for s.number
SELECT s.number, count(*) AS known, sum(CASE WHEN s.trace = t.trace THEN 1 ELSE 0 END) AS same
FROM __subjects__ AS s
JOIN __traces__ AS t ON s.id = t.id
WHERE __among__
GROUP BY s.number
ORDER BY s.number
