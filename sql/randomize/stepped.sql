-- stepped: for each record the number of its sub-table and of the places by which its value moves.
--   columns   __columns__, bid (of the moves)
--   reads     __dealt__(.., number: the sub-table, v: 0 .. 2^60 - 1, uniform); __steps__(sub_table, keep, other: of these
--             2^60 how many stay, and how many move by any one number of places); __moves__(bid, sub_table, step, begin:
--             where those that move so begin, 0 for those that stay)
--   holes     __columns__: columns of r
--   source    Chaytor & Wang 2010, equation 1; the next integers that keep keep/other <= gamma exactly
SELECT __columns__, m.bid
FROM (
  SELECT d.*, CASE WHEN d.v < s.keep THEN 0 ELSE d.v - (d.v - s.keep) % s.other END AS begin
  FROM __dealt__ AS d
  JOIN __steps__ AS s ON d.number = s.sub_table
) AS r
JOIN __moves__ AS m ON r.number = m.sub_table AND r.begin = m.begin
