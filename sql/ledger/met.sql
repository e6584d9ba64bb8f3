-- met: what releases hold of the records with small hashes, and how many different ones are in a source, too.
--   columns   number, records, different, once, twice, thrice, four (how many different ones stand so often), common
--   reads     __sketches__(number, hash, records): of releases, equal records counted;  __sketch__(hash): of the source
--   holes     __among__: predicate for s.number;  __limit__: hashes are below this
SELECT
  s.number,
  sum(s.records) AS records,
  count(*) AS different,
  sum(CASE WHEN s.records = 1 THEN 1 ELSE 0 END) AS once,
  sum(CASE WHEN s.records = 2 THEN 1 ELSE 0 END) AS twice,
  sum(CASE WHEN s.records = 3 THEN 1 ELSE 0 END) AS thrice,
  sum(CASE WHEN s.records = 4 THEN 1 ELSE 0 END) AS four,
  count(o.hash) AS common
FROM __sketches__ AS s
LEFT JOIN __sketch__ AS o ON s.hash = o.hash
WHERE __among__ AND s.hash < __limit__
GROUP BY s.number
ORDER BY s.number
