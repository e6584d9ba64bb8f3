-- marks: a short digest of a column's value beside names: of several records the smallest.
--   columns   name, field, mark
--   reads     __sampled__ (sql/ledger/sampled.sql);  holes __field__: number of the column;  __mark__: the digest of its value
SELECT name, __field__ AS field, min(__mark__) AS mark
FROM __sampled__
GROUP BY name
