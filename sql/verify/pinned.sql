-- pinned: published records whose quasi-identifiers have one sensitive value only in the source: what became of it.
--   columns   sub_table, own (code in the source), seen (code as published), n
--   reads     __records__ (sql/core/records.sql), __perturbed__(q0.., s0.., sub_table), __values__(code, s0..)
--   holes     __qi__: r.q0..;  __same_value__: NULL-safe equality of r and v;  __same_qi__: of p and k;
--             __same_seen__: of p and y
WITH kinds AS (
  SELECT __qi__, min(v.code) AS code
  FROM __records__ AS r
  JOIN __values__ AS v ON __same_value__
  GROUP BY __qi__
  HAVING min(v.code) = max(v.code)
)
SELECT p.sub_table, k.code AS own, y.code AS seen, count(*) AS n
FROM __perturbed__ AS p
JOIN kinds AS k ON __same_qi__
JOIN __values__ AS y ON __same_seen__
GROUP BY p.sub_table, k.code, y.code
ORDER BY p.sub_table, k.code, y.code
