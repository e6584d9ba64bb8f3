-- cell_counts: how many published records that meet a condition lie in every cell.
--   columns   place = cell (sub-table and perturbed value), pairs
--   reads     __perturbed__(sub_table, s0..), __cells__(cell, sub_table, s0..)
--   holes     __condition__: on the quasi-identifiers of p;  __same_value__: NULL-safe equality of p and c
SELECT c.cell AS place, count(*) AS pairs
FROM __perturbed__ AS p
JOIN __cells__ AS c ON p.sub_table = c.sub_table AND __same_value__
WHERE __condition__
GROUP BY c.cell
