-- unnamed: what is wrong with the publisher's names of the records.
--   columns   nulls (records without one), twice (names that stand more than once)
--   reads     __source__;  holes __id__: the column;  __keep__: predicate of the NULL policy
SELECT
  coalesce(sum(CASE WHEN id IS NULL THEN n ELSE 0 END), 0) AS nulls,
  coalesce(sum(CASE WHEN id IS NOT NULL AND n > 1 THEN 1 ELSE 0 END), 0) AS twice
FROM (SELECT __id__ AS id, count(*) AS n FROM __source__ WHERE __keep__ GROUP BY __id__) AS named
