-- together: how many of a bucket's listed values belong to each bounded set of values.
--   columns   bid, bound, held = sum of count(g, x) over the values x of the set
--   reads     __st__(bid, s0.., count), __values__(code, s0..), __members__(bound, code)
--   holes     __same_value__: NULL-safe equality of st and v
SELECT st.bid, m.bound, CAST(sum(st."count") AS BIGINT) AS held
FROM __st__ AS st
JOIN __values__ AS v ON __same_value__
JOIN __members__ AS m ON v.code = m.code
GROUP BY st.bid, m.bound
