-- parts: of every sensitive value its part in one sensitive column.
--   columns   code, part = rank of the part in canonical order, label (as text), s0
--   reads     __domain__(code, s0..): sql/core/domain.sql, or the listed values of a release
--   holes     __key__: d.s0, or another one
SELECT d.code, dense_rank() OVER (ORDER BY __key__ NULLS LAST) - 1 AS part, CAST(__key__ AS VARCHAR) AS label, __key__ AS s0
FROM __domain__ AS d
ORDER BY d.code
