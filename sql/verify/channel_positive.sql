-- check: every row of the channel is a number of meetings of two listed values. Rows: those that are not.
--   columns   size, first, second, pairs
--   reads     __channel__(size, first, second, pairs), __values__(code, ..)
SELECT c.size, c.first, c.second, c.pairs
FROM __channel__ AS c
LEFT JOIN __values__ AS a ON c.first = a.code
LEFT JOIN __values__ AS b ON c.second = b.code
WHERE a.code IS NULL OR b.code IS NULL OR c.size IS NULL OR coalesce(c.first > c.second OR c.pairs < 1, TRUE)
