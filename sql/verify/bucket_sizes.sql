-- bucket_sizes: |g| of every bucket as ST states it.
--   columns   bid, size
--   reads     __st__(bid, s0.., count)
SELECT bid, CAST(sum("count") AS BIGINT) AS size
FROM __st__
GROUP BY bid
