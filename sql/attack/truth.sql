-- truth: the sensitive values of the source's records that share a released record's quasi-identifiers.
--   columns   key (of sql/attack/rows.sql), code (of privsql_values), records
--   reads     __rows__(key, q0..), __records__(q0.., s0..) (sql/core/records.sql), __values__(code, s0..)
--   holes     __qi__: q0..;  __same_qi__: NULL-safe equality of k and r;  __same_value__: of r and v
SELECT k.key, v.code, count(*) AS records
FROM (SELECT DISTINCT key, __qi__ FROM __rows__) AS k
JOIN __records__ AS r ON __same_qi__
JOIN __values__ AS v ON __same_value__
GROUP BY k.key, v.code
ORDER BY k.key, v.code
