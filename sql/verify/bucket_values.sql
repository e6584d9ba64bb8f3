-- bucket_values: ST with its values by code.
--   columns   bid, code, n
--   reads     __st__(bid, s0.., count), __values__(code, s0..);  holes __same_value__: NULL-safe equality of st and v
SELECT st.bid, v.code, st."count" AS n
FROM __st__ AS st
JOIN __values__ AS v ON __same_value__
