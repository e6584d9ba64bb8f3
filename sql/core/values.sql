-- values: the sensitive values, or those of another column.
--   columns   the columns
--   reads     __domain__: a table with one row per value;  hole __columns__
SELECT __columns__
FROM __domain__
ORDER BY __columns__ NULLS LAST
