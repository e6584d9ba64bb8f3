-- fresh: the records that a release publishes for the first time, as they are published.
--   columns   id, q0.., s0..
--   reads     __records__ (id, q0.., s0..), __members__(id, bid), __known__(id): the records of earlier releases
--   holes     __columns__: r.q0.., r.s0..
SELECT r.id, __columns__
FROM __records__ AS r
JOIN __members__ AS m ON r.id = m.id
LEFT JOIN __known__ AS k ON r.id = k.id
WHERE k.id IS NULL
ORDER BY r.id
