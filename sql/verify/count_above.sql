-- check: no value stands more often than once in a bucket, as fake values need it. Rows: those that do.
--   columns   bid, s0.., count
--   reads     __st__(bid, s0.., count);  holes __sa__: s0..
SELECT bid, __sa__, "count"
FROM __st__
WHERE coalesce("count" > 1, TRUE)
