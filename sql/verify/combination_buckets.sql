-- combination_buckets: how many rows of each bucket have each combination of quasi-identifiers.
--   columns   qid, bid, n
--   reads     __qit__(q0.., bid), __combinations__ (sql/verify/combinations.sql)
--   holes     __same_qi__: NULL-safe equality of q and k
SELECT k.qid, q.bid, count(*) AS n
FROM __qit__ AS q
JOIN __combinations__ AS k ON __same_qi__
GROUP BY k.qid, q.bid
