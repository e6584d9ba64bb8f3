-- privsql_domains: the values that occur in each sub-table, and so in its perturbed records.
--   columns   cell (number), sub_table, code (of privsql_values)
--   reads     __cells__(cell, sub_table, code)
--   source    Chaytor & Wang 2010, section 4.1: SA_j
SELECT CAST(cell AS INTEGER) AS cell, CAST(sub_table AS INTEGER) AS sub_table, CAST(code AS INTEGER) AS code
FROM __cells__
ORDER BY cell
