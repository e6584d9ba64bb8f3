-- groups: how many groups some expressions make of records.
--   columns   number
--   reads     __records__
--   holes     __keys__: the expressions
SELECT count(*) AS number
FROM (
  SELECT DISTINCT __keys__
  FROM __records__
) AS groups
