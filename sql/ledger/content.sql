-- content: a fingerprint of a table of a release, the same whatever the order of its rows.
--   columns   records, fingerprint (the sum of the traces)
--   reads     __table__;  hole __trace__: the digest of a row as an expression over r
SELECT count(*) AS records, coalesce(sum(CAST(__trace__ AS DECIMAL(19, 0))), 0) AS fingerprint
FROM __table__ AS r
