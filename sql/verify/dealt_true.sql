-- check: the shuffle deals out the values of ST, group by group. Rows: groups and values that it deals otherwise.
--   columns   bid, code, surplus = records dealt - records of ST
--   reads     __qit__(bid, code), __st__(bid, s0, count), __values__(code, s0);  hole __same_value__: equality of st and v
SELECT bid, code, sum(n) AS surplus
FROM (
  SELECT bid, code, count(*) AS n FROM __qit__ GROUP BY bid, code
  UNION ALL
  SELECT st.bid, v.code, -st."count" AS n
  FROM __st__ AS st
  LEFT JOIN __values__ AS v ON __same_value__
) AS sides
GROUP BY bid, code
HAVING coalesce(sum(n) <> 0, TRUE) OR code IS NULL OR bid IS NULL
