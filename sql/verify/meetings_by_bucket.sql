-- meetings_by_bucket: what the buckets of a combination list, for combinations with many values and buckets.
--   columns   lying, listed: rows of the relations;  qid, code
--   reads     __lying__(place, qid, bid, by_value), __listed__(place, bid, code)
SELECT l.place AS lying, s.place AS listed, l.qid, s.code
FROM __lying__ AS l
JOIN __listed__ AS s ON l.bid = s.bid
WHERE NOT l.by_value
