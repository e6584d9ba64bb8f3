-- counted_values: the different values of a column, in canonical order.
--   columns   value, text (by which it is compared with values of other types), exact (one that differs wherever values
--             do), records
--   reads     __source__
--   holes     __value__: the column's value as an expression;  __text__, __exact__: those of column value;  __keep__:
--             predicate of the NULL policy
SELECT value, __text__ AS text, __exact__ AS exact, records
FROM (SELECT value, count(*) AS records FROM (SELECT __value__ AS value FROM __source__ WHERE __keep__) AS read GROUP BY value) AS counted
ORDER BY value NULLS LAST
