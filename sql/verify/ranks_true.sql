-- check: the rows of a small published table are numbered 0, 1, .. in canonical order. Rows: those that are not.
--   columns   stated, rank
--   reads     __table__
--   holes     __number__: the column with the number;  __order__: the canonical order
SELECT stated, rank
FROM (SELECT __number__ AS stated, row_number() OVER (ORDER BY __order__ NULLS LAST) - 1 AS rank FROM __table__) AS numbered
WHERE coalesce(stated <> rank, TRUE)
