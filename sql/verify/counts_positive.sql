-- check: every count of ST is a positive integer in a numbered bucket. Rows: those that are not.
--   columns   bid, s0.., count
--   reads     __st__;  holes __sa__: s0..
SELECT bid, __sa__, "count"
FROM __st__
WHERE bid IS NULL OR coalesce("count" < 1, TRUE)
