-- met: the item sets that meet a condition.
--   columns   part, count
--   reads     __sets__(part, items, count);  hole __condition__: over items
--   why       lists are DuckDB's own, outside the portable subset
SELECT part, count
FROM __sets__
WHERE __condition__
