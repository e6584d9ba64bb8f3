-- marks: a short hash of a column's value beside names: of several records the smallest.
--   columns   kind (ids or persons), name (a keyed hash), field, mark
--   reads     __sampled__ (sql/ledger/sampled.sql);  holes __kind__;  __hash__: that of column name;  __field__: number of
--             the column, -1 for the whole record;  __mark__: the hash of its value
SELECT __kind__ AS kind, __hash__ AS name, __field__ AS field, mark
FROM (SELECT name, min(__mark__) AS mark FROM __sampled__ GROUP BY name) AS marked
