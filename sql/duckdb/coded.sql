-- coded: the items of published sets by their codes.
--   columns   part, code (NULL: not in the universe)
--   reads     __sets__(part, items, weight), __universe__(code, item)
--   why       lists are DuckDB's own, outside the portable subset
SELECT s.part, u.code
FROM (SELECT part, unnest(items) AS item FROM __sets__) AS s
LEFT JOIN __universe__ AS u ON s.item = u.item
