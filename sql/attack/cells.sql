-- cells: the sub-table and perturbed value of every record as one number.
--   columns   cell; one row per record, as stored
--   reads     __rows__(pos, part, s0..) (sql/attack/rows.sql), __cells__(sub_table, s0.., cell) (sql/randomize/cells_stated.sql)
--   holes     __same_value__: NULL-safe equality of r and c
SELECT c.cell
FROM __rows__ AS r
JOIN __cells__ AS c ON r.part = c.sub_table AND __same_value__
ORDER BY r.pos
