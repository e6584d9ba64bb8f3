-- check: (k,e)-anonymity. Rows: groups with fewer than k distinct sensitive values, or whose values lie closer than e.
--   columns   bid, values, low, high
--   reads     __st__(bid, s0, count)
--   holes     __value__: s0;  __k__;  __narrow__: whether high - low < e, exact for the type of the column
--   source    Zhang, Koudas, Srivastava, Yu 2007, (k,e)-anonymity; thesis, Definition 2
SELECT bid, "values", low, high
FROM (
  SELECT bid, count(DISTINCT __value__) AS "values", min(__value__) AS low, max(__value__) AS high
  FROM __st__
  GROUP BY bid
) AS g
WHERE coalesce("values" < __k__ OR __narrow__, TRUE) OR low IS NULL
