-- queried_thresholds: the publisher's own thresholds matched to the domain.
--   columns   code, times (how many thresholds the value has), threshold (as text)
--   reads     __domain__ (sql/core/domain.sql), __given__(s0.., threshold)
--   holes     __same_value__: NULL-safe equality of d and t
SELECT d.code, count(t.threshold) AS times, max(CAST(t.threshold AS VARCHAR)) AS threshold
FROM __domain__ AS d
LEFT JOIN __given__ AS t ON __same_value__
GROUP BY d.code
ORDER BY d.code
