-- peaks: in how many buckets of each size the value that stands there most often stands how often.
--   columns   size, most, buckets
--   reads     __held__(bid, held), as of sql/bucketize/held.sql;  holes __size__: |g| by h.bid
SELECT p.size, p.most, count(*) AS buckets
FROM (
  SELECT h.bid, __size__ AS size, max(h.held) AS most
  FROM __held__ AS h
  GROUP BY h.bid, __size__
) AS p
GROUP BY p.size, p.most
