-- combination_values: how many records of the source have each value, by combination of quasi-identifiers.
--   columns   qid, code, n
--   reads     __records__ (sql/core/records.sql), __combinations__ (sql/verify/combinations.sql), __values__(code, s0..)
--   holes     __same_qi__: NULL-safe equality of r and k;  __same_value__: of r and v
SELECT k.qid, v.code, count(*) AS n
FROM __records__ AS r
JOIN __combinations__ AS k ON __same_qi__
JOIN __values__ AS v ON __same_value__
GROUP BY k.qid, v.code
