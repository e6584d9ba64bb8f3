-- privsql_rows: rows with weights in canonical order, in the columns' own types.
--   columns   the columns, weight
--   reads     __given__(s0, .. as text, weight);  holes __columns__: the columns, typed and named;
--             __order__: the same without names;  __weight__: a name
SELECT __columns__, g.weight AS __weight__
FROM __given__ AS g
ORDER BY __order__
