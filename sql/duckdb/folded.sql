-- folded: digests of a stored table, 65,536 rows at a time in the order in which they are stored.
--   columns   part (SHA-256 of the rows' texts, in hexadecimal)
--   reads     a table whose rows were inserted at once; so this file is DuckDB's own, outside the portable subset
--   why so    rows that are not committed yet have numbers that begin elsewhere
--   holes     __table__: the table
SELECT sha256(string_agg(CAST(r AS VARCHAR), chr(10) ORDER BY r.rowid)) AS part
FROM __table__ AS r
CROSS JOIN (SELECT min(rowid) AS one FROM __table__) AS begins
GROUP BY (r.rowid - begins.one) // 65536
ORDER BY (r.rowid - begins.one) // 65536
