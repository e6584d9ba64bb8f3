-- determined: the records whose sensitive value would be guessed right by who knows one column.
--   columns   determined
--   reads     __source__;  holes __column__, __sensitive__: one column each
SELECT coalesce(sum(most), 0) AS determined
FROM (
  SELECT value, max(n) AS most
  FROM (SELECT __column__ AS value, __sensitive__ AS given, count(*) AS n FROM __source__ GROUP BY __column__, __sensitive__) AS pairs
  GROUP BY value
) AS guesses
