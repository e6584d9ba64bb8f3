-- check: every entry of the channel is that of ST. Rows: sizes and pairs of values where it is not.
--   columns   size, first, second, surplus = stated - found
--   reads     __st__, __sizes__ (sql/verify/bucket_sizes.sql), __channel__(size, first, second, pairs), __values__(code, s0..)
--   holes     __same_value__: NULL-safe equality of st and v
WITH coded AS (
  SELECT st.bid, g.size, v.code, st."count"
  FROM __st__ AS st
  JOIN __sizes__ AS g ON st.bid = g.bid
  JOIN __values__ AS v ON __same_value__
)
SELECT size, first, second, sum(pairs) AS surplus
FROM (
  SELECT size, first, second, pairs FROM __channel__
  UNION ALL
  SELECT a.size, a.code AS first, b.code AS second, -sum(CAST(a."count" AS BIGINT) * b."count") AS pairs
  FROM coded AS a
  JOIN coded AS b ON a.bid = b.bid AND a.code <= b.code
  GROUP BY a.size, a.code, b.code
) AS sides
GROUP BY size, first, second
HAVING coalesce(sum(pairs) <> 0, TRUE)
