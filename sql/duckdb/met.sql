-- met: of each part's item sets those that meet a condition.
--   columns   part, sets, met
--   reads     __sets__(part, items, weight);  holes __items__: its list under the name items;  __condition__: over items
--   why       lists are DuckDB's own, outside the portable subset
SELECT part, count(*) AS sets, CAST(sum(CASE WHEN __condition__ THEN 1 ELSE 0 END) AS BIGINT) AS met
FROM (SELECT part, __items__ FROM __sets__) AS known
GROUP BY part
