-- cells: the domains of the sub-tables with their values.
--   columns   cell (number), sub_table, code (rank of the value among all), place (rank in its domain), s0..
--   reads     __listed__(cell, sub_table, code, place), __domain__ (sql/core/domain.sql)
--   holes     __sa__: d.s0..
SELECT c.cell, c.sub_table, c.code, c.place, __sa__
FROM __listed__ AS c
JOIN __domain__ AS d ON c.code = d.code
ORDER BY c.cell
