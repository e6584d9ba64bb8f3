-- entries: every value that a bucket lists, with its code and the bucket's size, in the order of buckets.
--   columns   bid, code, size
--   reads     __st__(bid, s0..), __sizes__ (sql/verify/bucket_sizes.sql), __values__(code, s0..)
--   holes     __same_value__: NULL-safe equality of st and v
SELECT st.bid, v.code, g.size
FROM __st__ AS st
JOIN __sizes__ AS g ON st.bid = g.bid
JOIN __values__ AS v ON __same_value__
ORDER BY st.bid, v.code
