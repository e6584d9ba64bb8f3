-- privsql_values: every sensitive value, and whether it is protected: its relative frequency is at most rho1.
--   columns   code (rank), the sensitive columns, protected
--   reads     __flags__(code, protected), __domain__ (sql/core/domain.sql)
--   holes     __sa__: s0.. under their own names;  __code__, __protected__: names
--   source    Chaytor & Wang 2010, equation 9: SA'
SELECT CAST(d.code AS INTEGER) AS __code__, __sa__, f.protected AS __protected__
FROM __flags__ AS f
JOIN __domain__ AS d ON f.code = d.code
ORDER BY d.code
