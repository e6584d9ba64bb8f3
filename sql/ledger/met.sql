-- met: which releases hold records that are equal to some of a source.
--   columns   number, theirs (records of the release that have an equal one here), ours (records here that have one there),
--             common (pairs of equal records, each in one pair)
--   reads     __sketches__(number, hash, records): records of releases, equal ones counted;  __sketch__(hash, records):
--             those of the source
--   holes     __among__: predicate for s.number
SELECT
  s.number,
  sum(s.records) AS theirs,
  sum(t.records) AS ours,
  sum(CASE WHEN s.records < t.records THEN s.records ELSE t.records END) AS common
FROM __sketches__ AS s
JOIN __sketch__ AS t ON s.hash = t.hash
WHERE __among__
GROUP BY s.number
ORDER BY s.number
