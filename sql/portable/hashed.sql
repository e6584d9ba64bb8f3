-- hashed: the records, each with a keyed hash of all that it holds.
--   columns   __columns__, h
--   reads     __records__ (sql/core/coded.sql); __secret__(word): one row
--   holes     __columns__: columns of r;  __hash__: 60 bits of r's columns and k.word, as the engine makes them
--   why       it depends on a record's content alone: whichever part of the table a record lies in, and however often
--             that part is read, its hash is the same; equal records have the same
SELECT __columns__, __hash__ AS h
FROM __records__ AS r
CROSS JOIN __secret__ AS k
