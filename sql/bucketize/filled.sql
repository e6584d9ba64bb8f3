-- filled: buckets whose records all have one of some values.
--   columns   bid
--   reads     __st__(bid, s0.., count), __values__(code, s0..), __excused__(code)
--   holes     __same_value__: NULL-safe equality of st and v;  __size__: |g| by st.bid
SELECT st.bid
FROM __st__ AS st
JOIN __values__ AS v ON __same_value__
JOIN __excused__ AS e ON v.code = e.code
WHERE st."count" >= __size__
