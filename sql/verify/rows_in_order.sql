-- check: the rows of a published table lie in canonical order, so their order tells nothing. Rows: those out of place.
--   columns   the row's key, that of the row before it
--   reads     __table__ (window without ORDER BY: the stored order is what is checked)
--   holes     __key__: the row as one value; NULL compares as the largest, as in the order of publication;
--             __strict__: TRUE where equal rows are a fault too
SELECT this_key, previous_key
FROM (
  SELECT __key__ AS this_key, lag(__key__) OVER () AS previous_key
  FROM __table__
) AS steps
WHERE this_key < previous_key OR (__strict__ AND this_key = previous_key)
