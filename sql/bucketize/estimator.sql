-- privsql_estimator: what each listed value adds to the estimate of each value. It follows from ST; plain SQL needs it.
--   columns   listed, value (codes of privsql_values), weight
--   reads     __weights__(listed, value, weight)
SELECT listed, value, weight
FROM __weights__
ORDER BY value, listed
