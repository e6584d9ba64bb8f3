-- coded: what is published of every record beside its value, and the rank of that value.
--   columns   q0.., code (rank in canonical order)
--   reads     __source__: the publisher's table;  __domain__ (sql/core/domain.sql)
--   holes     __qi__, __sa__: expressions named q0.., s0..;  __keep__: predicate of the NULL policy;
--             __columns__: r.q0..;  __same_value__: NULL-safe equality of r and d
SELECT __columns__, CAST(d.code AS INTEGER) AS code
FROM (SELECT __qi__, __sa__ FROM __source__ WHERE __keep__) AS r
JOIN __domain__ AS d ON __same_value__
