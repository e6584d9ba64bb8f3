-- privsql_values: every sensitive value with its records.
--   columns   code (rank), the sensitive column, records
--   reads     __domain__ (sql/core/domain.sql);  hole __sa__: s0 under its own name
SELECT CAST(d.code AS INTEGER) AS code, __sa__, CAST(d.records AS BIGINT) AS records
FROM __domain__ AS d
ORDER BY d.code
