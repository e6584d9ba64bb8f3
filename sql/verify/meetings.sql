-- meetings: which values records with a combination of quasi-identifiers can have in which bucket, by the rows that say so.
--   columns   own, lying, listed: rows of the three relations
--   reads     __own__(place, qid, code), __listed__(place, bid, code), __by_value__ (sql/verify/meetings_by_value.sql),
--             __by_bucket__ (sql/verify/meetings_by_bucket.sql)
--   why       of three relations an engine may join the values of all combinations with those of all buckets first,
--             which has far more rows than anything that is asked for; so two of them come first, tables of their own.
SELECT v.own, v.lying, s.place AS listed
FROM __by_value__ AS v
JOIN __listed__ AS s ON v.bid = s.bid AND v.code = s.code
UNION ALL
SELECT o.place AS own, b.lying, b.listed
FROM __by_bucket__ AS b
JOIN __own__ AS o ON b.qid = o.qid AND b.code = o.code
