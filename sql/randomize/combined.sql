-- combined: what is published of every record beside its value, and the number of its combination of quasi-identifiers.
--   columns   q0.., code, combination (0, 1, .. in canonical order)
--   reads     __coded__(q0.., code) (sql/core/coded.sql)
--   holes     __keys__: q0..;  __order__: the same, in order
SELECT __keys__, code, dense_rank() OVER (ORDER BY __order__) - 1 AS combination
FROM __coded__
