-- meetings: which values records with a combination of quasi-identifiers can have in which bucket, by the rows that say so.
--   columns   own, lying, listed: rows of the three relations
--   reads     __own__(place, qid, code), __lying__(place, qid, bid), __listed__(place, bid, code)
SELECT o.place AS own, l.place AS lying, s.place AS listed
FROM __lying__ AS l
JOIN __listed__ AS s ON l.bid = s.bid
JOIN __own__ AS o ON l.qid = o.qid AND s.code = o.code
