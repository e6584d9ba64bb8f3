-- bucket_sizes: |g| of every bucket as ST states it: the values that it lists without the fakes.
--   columns   bid, size
--   reads     __st__(bid, s0.., count);  hole __fakes__: how many each bucket has
SELECT bid, CAST(sum("count") AS BIGINT) - __fakes__ AS size
FROM __st__
GROUP BY bid
