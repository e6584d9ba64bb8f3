-- check: the numbers of buckets of each size are those of the manifest, and bucket numbers run by size from 0 without gaps.
--   columns   size, buckets, first, last (as found), claimed_buckets, claimed_first
--   reads     __sizes__ (sql/verify/bucket_sizes.sql), __claimed__(size, buckets, first)
SELECT coalesce(f.size, c.size) AS size, f.buckets, f.first, f.last, c.buckets AS claimed_buckets, c.first AS claimed_first
FROM (SELECT size, count(*) AS buckets, min(bid) AS first, max(bid) AS last FROM __sizes__ GROUP BY size) AS f
FULL JOIN __claimed__ AS c ON f.size = c.size
WHERE f.size IS NULL OR c.size IS NULL OR f.buckets IS DISTINCT FROM c.buckets OR f.first IS DISTINCT FROM c.first OR f.last IS DISTINCT FROM c.first + c.buckets - 1
