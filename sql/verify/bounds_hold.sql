-- check: bounds on sets of values. Rows: buckets in which the values of a set together exceed the set's bound.
--   columns   bid, name, held, size, numerator, denominator
--   reads     __held__ (sql/bucketize/together.sql), __sizes__ (sql/verify/bucket_sizes.sql),
--             __bounds__(bound, name, numerator, denominator as text)
--   source    sum of count(g, x) over x in the set <= f' |g|; compared as integers
SELECT h.bid, b.name, h.held, g.size, b.numerator, b.denominator
FROM __held__ AS h
JOIN __bounds__ AS b ON h.bound = b.bound
JOIN __sizes__ AS g ON h.bid = g.bid
WHERE coalesce(CAST(h.held AS HUGEINT) * CAST(b.denominator AS HUGEINT) > CAST(b.numerator AS HUGEINT) * g.size, TRUE)
