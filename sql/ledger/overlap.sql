-- overlap: how many of the records are in an earlier release, and how many of the others are new.
--   columns   known, fresh
--   reads     __ids__(id), __known__(id): the records of earlier releases
SELECT
  coalesce(sum(CASE WHEN k.id IS NULL THEN 0 ELSE 1 END), 0) AS known,
  coalesce(sum(CASE WHEN k.id IS NULL THEN 1 ELSE 0 END), 0) AS fresh
FROM __ids__ AS i
LEFT JOIN __known__ AS k ON i.id = k.id
