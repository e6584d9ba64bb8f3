-- dealt: what the piece at its rank says of every record.
--   columns   __columns__, number
--   reads     __drawn__ (sql/portable/drawn.sql);
--             __pieces__(part, bin, lo, hi, number, step): ranks lo .. hi - 1 in a stretch, their numbers in a row (step
--             1) or the same one (step 0); a record whose rank is in no piece is left out
--             __secret__(word): one row
--   holes     __columns__: columns of r, or made of r and k;  __meets__: whether r.rank lies in p
--   why       no window goes over more than one stretch, of which each holds about as many records
SELECT __columns__, CAST(p.number + p.step * (r.rank - p.lo) AS INTEGER) AS number
FROM (
  SELECT d.*, row_number() OVER (PARTITION BY d.part, d.bin ORDER BY d.u, d.h) - 1 AS rank
  FROM __drawn__ AS d
) AS r
CROSS JOIN __secret__ AS k
JOIN __pieces__ AS p ON r.part = p.part AND r.bin = p.bin AND __meets__
