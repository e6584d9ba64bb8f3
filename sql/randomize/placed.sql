-- placed: every record, in which cell of the channel it is seen.
--   columns   cell, the quasi-identifiers; sorted, since nothing else orders the rows of a join
--   reads     __perturbed__(sub_table, q0.., s0..), __cells__(cell, sub_table, s0..)
--   holes     __columns__: q.q0..;  __keys__: q0..;  __same_value__: NULL-safe equality of q and c
SELECT c.cell, __columns__
FROM __perturbed__ AS q
JOIN __cells__ AS c ON q.sub_table = c.sub_table AND __same_value__
ORDER BY c.cell, __keys__
