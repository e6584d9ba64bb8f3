-- record_sets: the bucket of each record that meets a condition, and the rank of its set.
--   columns   bid, set (rank of the groups and terms), the groups and terms
--   reads     __qit__
--   holes     __bid__: the column as it lies;  __terms__: groups and terms of the condition, named;  __filter__: the
--             condition on QIT;  __groups__: their names;  __same__: NULL-safe equality of r and k;  __chosen__: k.g_0..
WITH r AS (
  SELECT __bid__ AS bid, __terms__ FROM __qit__ WHERE __filter__
), k AS (
  SELECT row_number() OVER (ORDER BY __groups__) - 1 AS set, __groups__
  FROM (SELECT DISTINCT __groups__ FROM r) AS d
)
SELECT r.bid, CAST(k.set AS INTEGER) AS set, __chosen__
FROM r
JOIN k ON __same__
