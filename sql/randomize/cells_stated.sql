-- cells_stated: the cells of a release with their values.
--   columns   cell, sub_table, s0..
--   reads     __domains__(cell, sub_table, code), __values__(code, s0..)
--   holes     __sa__: v.s0..
SELECT d.cell, d.sub_table, __sa__
FROM __domains__ AS d
JOIN __values__ AS v ON d.code = v.code
