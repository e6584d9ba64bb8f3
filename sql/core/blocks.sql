-- blocks: the positions that each sensitive value takes among the sorted records.
--   columns   records, first, last; one row per value in canonical order
--   reads     __records__ (sql/core/records.sql);  holes __position__: the engine's number of a row of r;  __sa__: s0..
SELECT count(*) AS records, min(__position__) AS first, max(__position__) AS last
FROM __records__ AS r
GROUP BY __sa__
ORDER BY first
