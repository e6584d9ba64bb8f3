-- the release's own view: every record beside every value of its sub-table, with the weight that makes sums of counts.
--   columns   the quasi-identifiers, the sensitive columns, weight
--   reads     __perturbed__, __subtables__, __domains__, __values__
--   holes     __qi__, __sa__;  __same_value__: NULL-safe equality of perturbed and listed;  __perturbed_part__,
--             __listed_code__: columns as they lie;  __weight__: a name
--   why       no JOIN: files that DuckDB 1.1 reads lose the parentheses that it writes around one
--   source    Chaytor & Wang 2010, equation 7: f* = ((m - 1 + gamma) o - |Res|)/(gamma - 1), summed over sub-tables
SELECT
  __qi__,
  __sa__,
  (CASE WHEN __same_value__ THEN subtables.size - 1 + subtables.gamma ELSE 0 END - 1) / (subtables.gamma - 1) AS __weight__
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
