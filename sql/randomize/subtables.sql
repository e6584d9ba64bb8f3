-- privsql_subtables: the public parameters of every sub-table, exact.
--   columns   sub_table, records = |T_j|, size = m_j, rho1 and gamma as fractions of integers of 38 digits
--   reads     __given__(the same, fractions as text)
--   source    Chaytor & Wang 2010, equations 9 and 10
SELECT
  CAST(sub_table AS INTEGER) AS sub_table,
  CAST(records AS BIGINT) AS records,
  CAST(size AS INTEGER) AS size,
  CAST(rho1_numerator AS DECIMAL(38, 0)) AS rho1_numerator,
  CAST(rho1_denominator AS DECIMAL(38, 0)) AS rho1_denominator,
  CAST(gamma_numerator AS DECIMAL(38, 0)) AS gamma_numerator,
  CAST(gamma_denominator AS DECIMAL(38, 0)) AS gamma_denominator
FROM __given__
ORDER BY sub_table
