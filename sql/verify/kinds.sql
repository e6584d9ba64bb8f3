-- kinds: the rows of ST that are alike but for their bucket, one for all of them.
--   columns   bid (the least one), s0.., count (in a bucket), records = sum of count
--   reads     __st__(bid, s0.., count)
--   holes     __sa__: st.s0..;  __size__: |g| by st.bid, as it is stated
--   why       the checks that look at values, sizes and counts read a few rows instead of all
SELECT min(st.bid) AS bid, __sa__, st."count" AS "count", CAST(sum(st."count") AS BIGINT) AS records
FROM __st__ AS st
GROUP BY __size__, __sa__, st."count"
