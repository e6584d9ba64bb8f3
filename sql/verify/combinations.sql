-- combinations: every combination of quasi-identifiers of the source, numbered, the rarest ones first.
--   columns   q0.., qid
--   reads     __records__ (sql/core/records.sql)
--   holes     __qi__: q0..
SELECT __qi__, row_number() OVER (ORDER BY n) - 1 AS qid
FROM (SELECT __qi__, count(*) AS n FROM __records__ GROUP BY __qi__) AS k
