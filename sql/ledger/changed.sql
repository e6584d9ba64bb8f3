-- changed: records of earlier releases that are no longer there or no longer the same, in a table that only grows.
--   columns   id, fate (deleted or changed)
--   reads     __records__ (id, q0.., s0..), __known__(id, q0.., s0..) as they were published
--   holes     __same__: NULL-safe equality of r and k in every column
SELECT k.id, CASE WHEN r.id IS NULL THEN 'deleted' ELSE 'changed' END AS fate
FROM __known__ AS k
LEFT JOIN __records__ AS r ON k.id = r.id
WHERE r.id IS NULL OR NOT (__same__)
ORDER BY k.id
