-- certain: values of a sensitive column that all records of a bucket have, and of how many records that is so.
--   columns   value (as text), records
--   reads     __held__ (sql/bucketize/held.sql), __filled__(bid): buckets that are not looked at
--   holes     __key__: h.s0, or another one;  __label__: the same as text;  __size__: |g| by h.bid
SELECT __label__ AS value, sum(h.held) AS records
FROM __held__ AS h
LEFT JOIN __filled__ AS f ON h.bid = f.bid
WHERE coalesce(h.held >= __size__, TRUE) AND f.bid IS NULL
GROUP BY __key__
