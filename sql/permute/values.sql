-- privsql_values: every published sensitive value with its records.
--   columns   code (rank among those published), the sensitive column, records
--   reads     __domain__ (sql/core/domain.sql), __published__(code, rank, records): codes of the domain that are published
--   holes     __sa__: s0 under its own name;  __code__, __records__: names
SELECT CAST(p.rank AS INTEGER) AS __code__, __sa__, CAST(p.records AS BIGINT) AS __records__
FROM __published__ AS p
JOIN __domain__ AS d ON p.code = d.code
ORDER BY p.rank
