-- earlier: the group of every record in an earlier release, -1 where it was not in it.
--   columns   bid
--   reads     __records__ (sql/core/records.sql, with id), __members__(id, bid);  hole __position__: the engine's number of a row of r
SELECT coalesce(m.bid, -1) AS bid
FROM __records__ AS r
LEFT JOIN __members__ AS m ON r.id = m.id
ORDER BY __position__
