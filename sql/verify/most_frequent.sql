-- most_frequent: the most frequent value of a column (the smallest of several, NULL last).
--   columns   value
--   reads     __table__;  hole __column__
SELECT __column__ AS value
FROM __table__
GROUP BY __column__
ORDER BY count(*) DESC, __column__ NULLS LAST
LIMIT 1
