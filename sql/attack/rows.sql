-- rows: the records of a release as they lie, with what an adversary links them by.
--   columns   pos (number as stored), part (bucket or sub-table), key (rank of the quasi-identifiers together), q0.., and more
--   reads     __records__(part, q0.., and more) in the stored order, which is what is looked at
--   holes     __stored__: what the rows are ordered by as they lie, nothing where they are read so;  __qi__: q0..;  __more__: further columns or nothing;  __filter__: which records, by pos or part
SELECT pos, part, dense_rank() OVER (ORDER BY __qi__) - 1 AS key, __qi__, __more__
FROM (SELECT row_number() OVER (ORDER BY __stored__) - 1 AS pos, part, __qi__, __more__ FROM __records__) AS numbered
WHERE __filter__
