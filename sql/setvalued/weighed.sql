-- weighed: how many sets each part has, and what they weigh together.
--   columns   part, sets, weight
--   reads     __sets__(part, items, weight)
SELECT part, count(*) AS sets, sum(weight) AS weight
FROM __sets__
GROUP BY part
