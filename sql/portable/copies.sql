-- copies: the records, told apart where their hashes do not.
--   columns   those of __hashed__, copy: 0, 1, .. among the records of one hash
--   reads     __hashed__ (sql/portable/hashed.sql); __twice__ (sql/portable/twice.sql)
--   holes     __order__: r.code, r.q0.., so that copies of different records are the same ones at every reading
--   why       no window goes over records whose hash is their own
SELECT r.*, 0 AS copy
FROM __hashed__ AS r
WHERE NOT EXISTS (SELECT 1 FROM __twice__ AS t WHERE t.h = r.h)
UNION ALL
SELECT r.*, row_number() OVER (PARTITION BY r.h ORDER BY __order__) - 1 AS copy
FROM __hashed__ AS r
JOIN __twice__ AS t ON r.h = t.h
