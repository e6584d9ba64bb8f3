-- matched: stored rows beside the rows of an array, by position.
--   columns   those of the left table, bid (NULL where the positions do not agree: the checks would then fail)
--   reads     __records__: a stored table;  __positions__(pos, bid)
--   why       DuckDB's positional join needs no hash table of n rows; other engines join on the position
SELECT r.*, CASE WHEN r.rowid = s.pos THEN s.bid END AS bid
FROM __records__ AS r
POSITIONAL JOIN __positions__ AS s
