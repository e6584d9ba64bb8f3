-- the release's own view: every record beside every value of its sub-table, with the weight that makes sums of counts.
-- Sums of variances are estimates, without bias, of the variance of these sums.
--   columns   the quasi-identifiers, the sensitive columns, weight, variance
--   reads     __perturbed__, __subtables__, __domains__, __values__
--   holes     __qi__, __sa__;  __same_value__: NULL-safe equality of perturbed and listed;  __perturbed_part__,
--             __listed_code__: columns as they lie;  __weight__, __variance__: names
--   why       with d = m - 1 + gamma a record is published with v with probability p = gamma/d if v is its own, else q =
--             1/d. Its weight w is (d - 1)/(gamma - 1) if it is, else -1/(gamma - 1), with mean 1 or 0 and variance
--             d^2 p (1 - p)/(gamma - 1)^2 or d^2 q (1 - q)/(gamma - 1)^2. So (d/(gamma - 1))^2 (q (1 - q) + w (p (1 - p) -
--             q (1 - q))) has that variance as its mean; it is what is written below. No JOIN: files that DuckDB 1.1 reads
--             lose the parentheses that it writes around one
--   source    Chaytor & Wang 2010, equation 7: f* = ((m - 1 + gamma) o - |Res|)/(gamma - 1), summed over sub-tables
SELECT
  __qi__,
  __sa__,
  (CASE WHEN __same_value__ THEN subtables.size - 1 + subtables.gamma ELSE 0 END - 1) / (subtables.gamma - 1) AS __weight__,
  CASE WHEN __same_value__ THEN (subtables.size - 2 + subtables.gamma) * (subtables.size - 1) ELSE subtables.gamma END
  / ((subtables.gamma - 1) * (subtables.gamma - 1)) AS __variance__
FROM
  __perturbed__ AS perturbed,
  (
    SELECT sub_table, size, CAST(gamma_numerator AS DOUBLE) / CAST(gamma_denominator AS DOUBLE) AS gamma
    FROM __subtables__
  ) AS subtables,
  __domains__ AS domains,
  __values__ AS listed
WHERE __perturbed_part__ = subtables.sub_table
  AND __perturbed_part__ = domains.sub_table
  AND domains.code = __listed_code__
