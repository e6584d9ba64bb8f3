-- frequencies: the values of one column, and how many records have each.
--   columns   value, records; one row per value, in order, NULL last
--   reads     __domain__(the column, records): one row per combination of values;  hole __column__
SELECT __column__ AS value, CAST(sum(records) AS BIGINT) AS records
FROM __domain__
GROUP BY __column__
ORDER BY __column__ NULLS LAST
