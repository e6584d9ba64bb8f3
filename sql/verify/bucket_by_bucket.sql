-- check: QIT's rows lie bucket by bucket, as many in each as the stated setting says. Rows: those in another bucket, and the
--        number of all if it is not the stated one.
--   columns   bid, place (0, 1, .. as stored; of the last row: how many there are)
--   reads     __qit__(bid, ..) in the stored order, which is what is checked
--   holes     __stored__: what the rows are ordered by as they lie, nothing where they are read so;  __first__: where the rows of bucket r.bid begin;  __size__: |g| by r.bid;  __records__: how many rows there are
--   why       a bucket follows from the place of a row, so that rows need not be counted by buckets
SELECT r.bid, r.place
FROM (SELECT bid, row_number() OVER (ORDER BY __stored__) - 1 AS place FROM __qit__) AS r
WHERE r.bid IS NULL OR coalesce(r.place < __first__ OR r.place >= __first__ + __size__, TRUE)
UNION ALL
SELECT NULL AS bid, count(*) AS place
FROM __qit__
HAVING coalesce(count(*) <> __records__, TRUE)
