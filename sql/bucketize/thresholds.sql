-- privsql_thresholds: f'_i of every sensitive value as an exact fraction.
--   columns   the sensitive columns, numerator, denominator (38 digits)
--   reads     __fractions__(code, numerator, denominator as text), __domain__ (sql/core/domain.sql)
--   holes     __sa__: s0.. under their own names
SELECT __sa__, CAST(f.numerator AS DECIMAL(38, 0)) AS numerator, CAST(f.denominator AS DECIMAL(38, 0)) AS denominator
FROM __fractions__ AS f
JOIN __domain__ AS d ON f.code = d.code
ORDER BY f.code
