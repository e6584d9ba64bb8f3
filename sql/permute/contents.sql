-- contents: what every group holds, by code.
--   columns   bid, code, records; in order of bid and code
--   reads     __st__(bid, s0, count), __values__(code, s0);  hole __same_value__: equality of st and v
SELECT st.bid, v.code, st."count" AS records
FROM __st__ AS st
JOIN __values__ AS v ON __same_value__
ORDER BY st.bid, v.code
