-- check: every perturbed value belongs to the domain of its sub-table. Rows: values that do not, and how often.
--   columns   sub_table, s0.., records
--   reads     __perturbed__(sub_table, s0..), __cells__(sub_table, s0.., cell)
--   holes     __sa__: p.s0..;  __same_value__: NULL-safe equality of p and c
SELECT p.sub_table, __sa__, count(*) AS records
FROM __perturbed__ AS p
LEFT JOIN __cells__ AS c ON p.sub_table = c.sub_table AND __same_value__
WHERE c.cell IS NULL
GROUP BY p.sub_table, __sa__
