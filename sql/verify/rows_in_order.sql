-- check: the rows of a published table lie in canonical order, so their order tells nothing. Rows: those out of place.
--   columns   c_0, p_0, c_1, ..: the row's key, and that of the row before it
--   reads     __table__ in the stored order, which is what is checked
--   holes     __columns__: the key's columns as c_0, ..;  __previous__: those of the row before as p_0, ..;
--             __stored__: what the rows are ordered by as they lie, nothing where they are read so;  __keys__: all of these;
--             __behind__: whether c_0, .. should come before p_0, .., NULL being the largest, as in the order of publication
SELECT __keys__
FROM (
  SELECT __columns__, __previous__, lag(1) OVER (ORDER BY __stored__) AS follows
  FROM __table__
) AS steps
WHERE follows IS NOT NULL AND coalesce(__behind__, TRUE)
