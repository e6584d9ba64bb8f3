-- check: the channel agrees with ST in all its row sums: sum_x pairs(S, i, x) = (S + fakes) * (times i is listed in buckets of size S).
--        Rows: sizes and values where it does not. (sql/verify/channel_true.sql compares every entry.)
--   columns   size, code, stated, found
--   reads     __st__, __sizes__ (sql/verify/bucket_sizes.sql), __channel__(size, first, second, pairs), __values__(code, s0..)
--   holes     __sa_st__: st.s0..;  __same_value__: NULL-safe equality of p and v;  __fakes__: values of a
--             bucket that are not real
SELECT size, code, sum(stated) AS stated, sum(found) AS found
FROM (
  SELECT size, first AS code, pairs AS stated, 0 AS found FROM __channel__
  UNION ALL
  SELECT size, second AS code, pairs AS stated, 0 AS found FROM __channel__ WHERE first <> second
  UNION ALL
  SELECT p.size, v.code, 0 AS stated, (p.size + __fakes__) * p.records AS found
  FROM (
    SELECT g.size, __sa_st__, sum(st."count") AS records
    FROM __st__ AS st
    JOIN __sizes__ AS g ON st.bid = g.bid
    GROUP BY g.size, __sa_st__
  ) AS p
  JOIN __values__ AS v ON __same_value__
) AS sides
GROUP BY size, code
HAVING coalesce(sum(stated) <> sum(found), TRUE)
