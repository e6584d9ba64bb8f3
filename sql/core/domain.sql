-- domain: the sensitive values and how many records have each.
--   columns   s0.., records = o_i, code = 0..m-1 (rank in canonical order)
--   reads     __source__: the publisher's table
--   holes     __sa__: expressions named s0..;  __keep__: predicate of the NULL policy;  __keys__, __sa_order__: s0..
--   source    Wang et al., section 3: o_i
SELECT __keys__, records, CAST(row_number() OVER (ORDER BY __sa_order__ NULLS LAST) - 1 AS BIGINT) AS code
FROM (
  SELECT __keys__, count(*) AS records
  FROM (SELECT __sa__ FROM __source__ WHERE __keep__) AS kept
  GROUP BY __keys__
) AS frequencies
ORDER BY code
