-- bounds: every value's threshold, and the most records of it in a bucket of each size.
--   columns   code, s0.. (as text), numerator, denominator, size, most
--   reads     __st__(bid, s0.., count), __sizes__ (sql/verify/bucket_sizes.sql), __values__(code, s0.., numerator, denominator)
--   holes     __sa__: st.s0..;  __labels__: v.s0.. as text;  __same_value__: NULL-safe equality of v and w
SELECT v.code, __labels__, v.numerator, v.denominator, w.size, w.most
FROM __values__ AS v
JOIN (
  SELECT __sa__, g.size, max(st."count") AS most
  FROM __st__ AS st
  JOIN __sizes__ AS g ON st.bid = g.bid
  GROUP BY __sa__, g.size
) AS w ON __same_value__
ORDER BY v.code, w.size
