-- below: what releases hold of the records with small hashes.
--   columns   number, records, once, twice (how many hashes stand once and twice among them)
--   reads     __sketches__(number, hash, records);  holes __among__: predicate for s.number;  __limit__: of the hashes
SELECT
  s.number,
  sum(s.records) AS records,
  sum(CASE WHEN s.records = 1 THEN 1 ELSE 0 END) AS once,
  sum(CASE WHEN s.records = 2 THEN 1 ELSE 0 END) AS twice
FROM __sketches__ AS s
WHERE __among__ AND s.hash < __limit__
GROUP BY s.number
ORDER BY s.number
