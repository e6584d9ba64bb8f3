-- check: F'-privacy. Rows: buckets and values with count/|g| > f', or without a threshold.
--   columns   bid, s0.., count, size, numerator, denominator
--   reads     __st__(bid, s0.., count), __sizes__ (sql/verify/bucket_sizes.sql), __thresholds__(s0.., numerator, denominator)
--   holes     __sa__: s0..;  __sa_worst__: w.s0..;  __sa_st__: st.s0..;
--             __same_threshold__, __same_value__: NULL-safe equality of w and t, of st and b
--   source    Wang et al., Definition of F'-privacy: count(g, x)/|g| <= f'; compared as integers.
--             The largest count per value and size decides (NULL if one is); buckets are looked up only where it is too large.
WITH worst AS (
  SELECT __sa__, g.size, CASE WHEN count(st."count") = count(*) THEN max(st."count") END AS most
  FROM __st__ AS st
  JOIN __sizes__ AS g ON st.bid = g.bid
  GROUP BY __sa__, g.size
), bad AS (
  SELECT __sa_worst__, w.size, t.numerator, t.denominator
  FROM worst AS w
  LEFT JOIN __thresholds__ AS t ON __same_threshold__
  WHERE coalesce(CAST(w.most AS HUGEINT) * CAST(t.denominator AS HUGEINT) > CAST(t.numerator AS HUGEINT) * w.size, TRUE)
)
SELECT st.bid, __sa_st__, st."count", b.size, b.numerator, b.denominator
FROM bad AS b
JOIN __st__ AS st ON __same_value__
JOIN __sizes__ AS g ON st.bid = g.bid AND g.size IS NOT DISTINCT FROM b.size
WHERE coalesce(CAST(st."count" AS HUGEINT) * CAST(b.denominator AS HUGEINT) > CAST(b.numerator AS HUGEINT) * b.size, TRUE)
