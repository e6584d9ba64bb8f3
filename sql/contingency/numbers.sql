-- numbers: how many cells each part has, and what they weigh together.
--   columns   part, cells, weight
--   reads     __cells__(part, the columns, weight)
SELECT part, count(*) AS cells, sum(weight) AS weight
FROM __cells__
GROUP BY part
