-- peaks: in how many buckets of each size the value that stands there most often stands how often, if more than once.
--   columns   size, most, buckets
--   reads     __held__(bid, held), as of sql/bucketize/held.sql;  holes __size__: |g| by h.bid
SELECT __size__ AS size, h.most, count(*) AS buckets
FROM (SELECT bid, max(held) AS most FROM __held__ AS listed WHERE held IS DISTINCT FROM 1 GROUP BY bid) AS h
GROUP BY __size__, h.most
