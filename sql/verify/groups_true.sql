-- check: records whose sensitive value lies in one group only are in that group. Rows: quasi-identifiers and groups that lack some.
--   columns   q0.., bid, missing
--   reads     __records__ (sql/core/records.sql), __qit__(q0.., bid), __st__(bid, s0, count)
--   holes     __qi__: q0..;  __value__: s0;  __qi_records__: r.q0..;  __same_value__: equality of r and sole;
--             __same_qi__: NULL-safe equality of expected and found;  __qi_expected__: expected.q0..
SELECT __qi_expected__, expected.bid, expected.n - coalesce(found.n, 0) AS missing
FROM (
  SELECT __qi_records__, sole.bid, count(*) AS n
  FROM __records__ AS r
  JOIN (SELECT __value__, min(bid) AS bid FROM __st__ GROUP BY __value__ HAVING count(*) = 1) AS sole ON __same_value__
  GROUP BY __qi_records__, sole.bid
) AS expected
LEFT JOIN (SELECT __qi__, bid, count(*) AS n FROM __qit__ GROUP BY __qi__, bid) AS found
  ON expected.bid = found.bid AND __same_qi__
WHERE coalesce(expected.n > coalesce(found.n, 0), TRUE)
