-- null_counts: how many records the NULL policy concerns.
--   columns   records = all, kept = those that pass the policy, refused = those that must not be there
--   reads     __source__
--   holes     __keep__, __refuse__: predicates
SELECT
  count(*) AS records,
  coalesce(sum(CASE WHEN __keep__ THEN 1 ELSE 0 END), 0) AS kept,
  coalesce(sum(CASE WHEN __refuse__ THEN 1 ELSE 0 END), 0) AS refused
FROM __source__
