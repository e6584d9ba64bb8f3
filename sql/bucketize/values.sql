-- privsql_values: every sensitive value with its records and its threshold f'_i as an exact fraction.
--   columns   code (rank), the sensitive columns, records = o_i, numerator, denominator (38 digits), deviation: that of what
--             a record adds to the estimated count, or to its error, NULL where the release holds no estimator
--   reads     __fractions__(code, records, numerator, denominator as text, deviation), __domain__ (sql/core/domain.sql)
--   holes     __sa__: s0.. under their own names;  __code__, __records__, __numerator__, __denominator__, __deviation__: names
SELECT
  CAST(d.code AS INTEGER) AS __code__,
  __sa__,
  CAST(f.records AS BIGINT) AS __records__,
  CAST(f.numerator AS DECIMAL(38, 0)) AS __numerator__,
  CAST(f.denominator AS DECIMAL(38, 0)) AS __denominator__,
  f.deviation AS __deviation__
FROM __fractions__ AS f
JOIN __domain__ AS d ON f.code = d.code
ORDER BY d.code
