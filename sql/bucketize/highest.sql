-- highest: for each value of a sensitive column, the most that a bucket of each size holds of it.
--   columns   value (as text), size, most
--   reads     __held__ (sql/bucketize/held.sql)
--   holes     __key__: h.s0, or another one;  __label__: the same as text;  __size__: |g| by h.bid
SELECT __label__ AS value, __size__ AS size, max(h.held) AS most
FROM __held__ AS h
GROUP BY __key__, __size__
