-- drawn: columns of the records at given positions, in the order in which these were drawn.
--   columns   the columns
--   reads     __records__ (sql/core/records.sql), __drawn__(rank, pos)
--   holes     __columns__: r.q0..;  __position__: the engine's number of a row of r
SELECT __columns__
FROM __records__ AS r
JOIN __drawn__ AS d ON __position__ = d.pos
ORDER BY d.rank
