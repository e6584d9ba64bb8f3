-- privsql_rows: rows with weights in canonical order, in the columns' own types.
--   columns   the columns, weight
--   reads     __given__(s0, .. as text, weight);  holes __columns__: the columns, typed and named;  __order__: their names
SELECT __columns__, weight
FROM __given__
ORDER BY __order__
