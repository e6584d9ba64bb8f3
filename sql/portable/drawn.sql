-- drawn: a place on a line for every record, and the stretch of the line in which it lies.
--   columns   __columns__, h, part, u: 0 .. 2^60 - 1, independent and uniform; bin: where its stretch begins
--   reads     __copies__ (sql/portable/copies.sql); __parts__(part, width, ..); __secret__(word): one row
--   holes     __columns__: columns of r;  __hash__: 60 bits of k.word, r.h and r.copy;  __same_part__: which r belongs to which s
SELECT c.*, c.u - c.u % c.width AS bin
FROM (
  SELECT __columns__, r.h, s.part, s.width, __hash__ AS u
  FROM __copies__ AS r
  JOIN __parts__ AS s ON __same_part__
  CROSS JOIN __secret__ AS k
) AS c
