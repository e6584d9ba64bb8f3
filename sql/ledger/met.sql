-- met: which releases hold records that are equal to some of a source.
--   columns   number, theirs (records of the release that have an equal one here), ours (records here that have one there),
--             common (pairs of equal records, each in one pair)
--   reads     __subjects__(number, trace, records): the records of releases;  __traces__(trace, records): those of the source
--   holes     __among__: predicate for s.number
SELECT
  s.number,
  sum(s.records) AS theirs,
  sum(t.records) AS ours,
  sum(CASE WHEN s.records < t.records THEN s.records ELSE t.records END) AS common
FROM (SELECT s.number, s.trace, sum(s.records) AS records FROM __subjects__ AS s WHERE __among__ GROUP BY s.number, s.trace) AS s
JOIN (SELECT trace, sum(records) AS records FROM __traces__ GROUP BY trace) AS t ON s.trace = t.trace
GROUP BY s.number
ORDER BY s.number
