-- prefixes: values of a text column that are no codes, and how many first 1, 2, 3 characters its values have.
--   columns   others, first_1, first_2, first_3
--   reads     __source__;  hole __column__
SELECT
  count(*) FILTER (WHERE NOT regexp_full_match(value, '[A-Za-z]{0,2}[0-9][0-9A-Za-z. -]{1,9}')) AS others,
  count(DISTINCT left(value, 1)) AS first_1,
  count(DISTINCT left(value, 2)) AS first_2,
  count(DISTINCT left(value, 3)) AS first_3
FROM (SELECT DISTINCT __column__ AS value FROM __source__ WHERE __column__ IS NOT NULL) AS codes
