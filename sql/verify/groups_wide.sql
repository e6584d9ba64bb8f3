-- groups_wide: the width of every group, and how many different values it has.
--   columns   bid, low, high, width (exact, in steps of the type; for floats as rounded), kinds
--   reads     __st__(bid, s0, count);  holes __value__: s0;  __width__: high - low
SELECT bid, low, high, __width__ AS width, kinds
FROM (SELECT bid, min(__value__) AS low, max(__value__) AS high, count(DISTINCT __value__) AS kinds FROM __st__ GROUP BY bid) AS g
ORDER BY bid
