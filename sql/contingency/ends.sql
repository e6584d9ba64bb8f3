-- ends: the smallest and the largest value of a column.
--   columns   low, high
--   reads     __domain__ (sql/core/domain.sql);  hole __value__: one of its columns
SELECT min(__value__) AS low, max(__value__) AS high
FROM __domain__
