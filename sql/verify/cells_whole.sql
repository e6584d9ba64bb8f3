-- check: records with equal quasi-identifiers are in one cell. Rows: quasi-identifiers that are in several.
--   columns   q0.., cells
--   reads     __qit__(q0.., bid)
--   holes     __qi__: q0..
SELECT __qi__, count(DISTINCT bid) AS cells
FROM __qit__
GROUP BY __qi__
HAVING count(DISTINCT bid) > 1
