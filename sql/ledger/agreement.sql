-- agreement: how columns agree along common names.
--   columns   field, names (common ones), equal (of these beside equal marks), products (sum over marks of how often it
--             stands in one times how often in the other; divided by names: equal marks if one is shuffled)
--   reads     __theirs__, __ours__(name, field, mark)
SELECT along.field, along.names, along.equal, coalesce(shuffled.products, 0) AS products
FROM (
  SELECT t.field, count(*) AS names, sum(CASE WHEN t.mark = o.mark THEN 1 ELSE 0 END) AS equal
  FROM __theirs__ AS t
  JOIN __ours__ AS o ON t.name = o.name AND t.field = o.field
  GROUP BY t.field
) AS along
LEFT JOIN (
  SELECT a.field, sum(a.names * b.names) AS products
  FROM (
    SELECT t.field, t.mark, count(*) AS names
    FROM __theirs__ AS t
    JOIN __ours__ AS o ON t.name = o.name AND t.field = o.field
    GROUP BY t.field, t.mark
  ) AS a
  JOIN (
    SELECT o.field, o.mark, count(*) AS names
    FROM __theirs__ AS t
    JOIN __ours__ AS o ON t.name = o.name AND t.field = o.field
    GROUP BY o.field, o.mark
  ) AS b ON a.field = b.field AND a.mark = b.mark
  GROUP BY a.field
) AS shuffled ON along.field = shuffled.field
ORDER BY along.field
