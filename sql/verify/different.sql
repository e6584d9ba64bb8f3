-- different: the values that stand in a column of a release, but for NULL, each once.
--   columns   the column: its values
--   reads     __table__: one of the tables of a release;  hole __column__
SELECT DISTINCT __column__
FROM __table__
WHERE __column__ IS NOT NULL
