-- several: how many persons the records are of, and how many records one has.
--   columns   persons, several (persons with more than one record), most (records of one person), nulls (records of nobody)
--   reads     __source__;  holes __person__: the text that names a person;  __keep__: predicate
SELECT
  coalesce(sum(CASE WHEN person IS NULL THEN 0 ELSE 1 END), 0) AS persons,
  coalesce(sum(CASE WHEN person IS NOT NULL AND n > 1 THEN 1 ELSE 0 END), 0) AS several,
  coalesce(max(CASE WHEN person IS NULL THEN 0 ELSE n END), 0) AS most,
  coalesce(sum(CASE WHEN person IS NULL THEN n ELSE 0 END), 0) AS nulls
FROM (SELECT __person__ AS person, count(*) AS n FROM __source__ WHERE __keep__ GROUP BY __person__) AS own
