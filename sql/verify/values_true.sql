-- check: the listed values, their ranks and their records are those of ST. Rows: values where they differ.
--   columns   s0.., listed (records as listed), found (records in ST), code, rank
--   reads     __st__(s0.., count), __values__(code, s0.., records)
--   holes     __sa__: s0..
SELECT __sa__, sum(listed) AS listed, sum(found) AS found, max(code) AS code, max(rank) AS rank
FROM (
  SELECT __sa__, CAST(NULL AS BIGINT) AS listed, CAST("count" AS BIGINT) AS found, CAST(NULL AS BIGINT) AS code, CAST(NULL AS BIGINT) AS rank
  FROM __st__
  UNION ALL
  SELECT __sa__, CAST(records AS BIGINT) AS listed, CAST(NULL AS BIGINT) AS found, CAST(code AS BIGINT) AS code,
    CAST(row_number() OVER (ORDER BY __sa__ NULLS LAST) - 1 AS BIGINT) AS rank
  FROM __values__
) AS sides
GROUP BY __sa__
HAVING NOT coalesce(count(rank) = 1 AND sum(listed) = sum(found) AND max(code) = max(rank), FALSE)
