-- fingerprint: numbers that tell the rows of a relation from others, whatever their order.
--   columns   records, mixed, total
--   reads     a relation; so this file is DuckDB's own, outside the portable subset
--   holes     __table__: the relation
--   why so    nothing rests on these hashes but which file of the user's own cache is looked at
SELECT count(*) AS records, bit_xor(hash(r)) AS mixed, sum(CAST(hash(r) AS HUGEINT)) AS total
FROM __table__ AS r
