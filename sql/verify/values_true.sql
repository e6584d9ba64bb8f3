-- check: the listed values, their ranks and their records are those of ST. Rows: values where they differ.
--   columns   s0.., listed (records as listed), found (records in ST), code, rank
--   reads     __st__, __values__(code, s0.., records)
--   holes     __sa__: s0..;  __sa_order__: v.s0..;  __sa_found__: s0.. of either side;  __same_value__: NULL-safe equality of f and v
SELECT __sa_found__, v.records AS listed, f.records AS found, v.code, v.rank
FROM (SELECT __sa__, sum("count") AS records FROM __st__ GROUP BY __sa__) AS f
FULL JOIN (
  SELECT *, row_number() OVER (ORDER BY __sa_order__ NULLS LAST) - 1 AS rank FROM __values__ AS v
) AS v ON __same_value__
WHERE f.records IS NULL OR v.records IS NULL OR f.records <> v.records OR v.code IS DISTINCT FROM v.rank
