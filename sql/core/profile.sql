-- profile: what `init` needs to know of one column.
--   columns   records, filled (not NULL), different (values), most (records of the most frequent value)
--   reads     __source__;  hole __column__
SELECT
  coalesce(sum(n), 0) AS records,
  coalesce(sum(CASE WHEN value IS NULL THEN 0 ELSE n END), 0) AS filled,
  count(value) AS different,
  coalesce(max(CASE WHEN value IS NULL THEN 0 ELSE n END), 0) AS most
FROM (SELECT __column__ AS value, count(*) AS n FROM __source__ GROUP BY __column__) AS frequencies
