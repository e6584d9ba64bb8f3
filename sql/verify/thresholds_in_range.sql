-- check: every threshold is a fraction in (0, 1] and stands once. Rows: those that do not.
--   columns   s0.., numerator, denominator, times
--   reads     __thresholds__;  holes __sa__: s0..
SELECT __sa__, min(numerator) AS numerator, max(denominator) AS denominator, count(*) AS times
FROM __thresholds__
GROUP BY __sa__
HAVING coalesce(count(*) > 1 OR min(numerator) <= 0 OR max(numerator) > min(denominator), TRUE)
