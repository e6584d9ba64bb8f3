-- meetings_by_value: the values of a combination beside each of its buckets, for combinations that have few of both.
--   columns   own, lying: rows of the relations;  bid, code
--   reads     __own__(place, qid, code), __lying__(place, qid, bid, by_value)
SELECT o.place AS own, l.place AS lying, l.bid, o.code
FROM __lying__ AS l
JOIN __own__ AS o ON l.qid = o.qid
WHERE l.by_value
