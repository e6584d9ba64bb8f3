-- held: how many of a bucket's listed values agree in some of the sensitive columns.
--   columns   bid, the columns in question, held = sum of count(g, x) over the values x that agree
--   reads     __st__(bid, s0.., count);  holes __sa__: some of s0..
SELECT bid, __sa__, CAST(sum("count") AS BIGINT) AS held
FROM __st__
GROUP BY bid, __sa__
