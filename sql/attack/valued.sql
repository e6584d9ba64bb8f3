-- valued: the true value of every record, by the number of its combination of quasi-identifiers.
--   columns   combination, value
--   reads     __records__(q0.., s0)
--   holes     __order__: q0.., in order
SELECT dense_rank() OVER (ORDER BY __order__) - 1 AS combination, CAST(s0 AS VARCHAR) AS value
FROM __records__
