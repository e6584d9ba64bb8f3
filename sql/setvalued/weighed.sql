-- weighed: what the sets of each part weigh together.
--   columns   part, weight
--   reads     __sets__(part, items, weight)
SELECT part, sum(weight) AS weight
FROM __sets__
GROUP BY part
