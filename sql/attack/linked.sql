-- linked: released records that are alone with their quasi-identifiers, with the person that each is of and its true value.
--   columns   person (number), part (bucket), code (of privsql_values)
--   reads     __rows__(part, key, q0..) of the release; __people__(person, q0.., s0..) (sql/core/people.sql); __values__(code, s0..)
--   holes     __qi__: q0..;  __same_qi__: NULL-safe equality of a and p;  __same_value__: of p and v
SELECT dense_rank() OVER (ORDER BY person) - 1 AS person, part, code
FROM (
  SELECT p.person, a.part, v.code, count(*) OVER (PARTITION BY a.key) AS alike
  FROM (SELECT part, key, __qi__, count(*) OVER (PARTITION BY key) AS alike FROM __rows__) AS a
  JOIN __people__ AS p ON __same_qi__
  JOIN __values__ AS v ON __same_value__
  WHERE a.alike = 1
) AS met
WHERE alike = 1
ORDER BY person, part, code
