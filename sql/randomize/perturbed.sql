-- perturbed: the records with their sensitive values perturbed inside their sub-tables.
--   columns   the quasi-identifiers, the sensitive columns, sub_table
--   reads     __assigned__: the records (sql/core/records.sql) with bid, the number of what was drawn for each;
--             __moves__(bid, sub_table, step, size); __cells__ (sql/randomize/cells.sql)
--   holes     __qi__: r.q0.. under their own names;  __sa__: y.s0.. under their own names;  __qi_order__: r.q0..;
--             __sub_table__: a name;  __same_value__: NULL-safe equality of x and r
--   source    Chaytor & Wang 2010, equation 1: the value moves by step places in the domain of its sub-table
SELECT __qi__, __sa__, v.sub_table AS __sub_table__
FROM __assigned__ AS r
JOIN __moves__ AS v ON r.bid = v.bid
JOIN __cells__ AS x ON v.sub_table = x.sub_table AND __same_value__
JOIN __cells__ AS y
  ON y.cell = x.cell + CASE WHEN x.place + v.step < v.size THEN v.step ELSE v.step - v.size END
ORDER BY v.sub_table, __qi_order__ NULLS LAST, y.cell
