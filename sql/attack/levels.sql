-- levels: quasi-identifiers as numbers: the ranks of every record's values (NULL last).
--   columns   those of __levels__ = 0, 1, ..; one row per record, as stored
--   reads     __rows__ (sql/attack/rows.sql);  hole __levels__: dense_rank() OVER (ORDER BY q0 NULLS LAST) - 1 AS l0, ..
SELECT __levels__
FROM __rows__ AS ranked
ORDER BY pos
