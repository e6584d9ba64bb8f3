-- texts_found: which of some texts a column of a release holds.
--   columns   found (each once)
--   reads     __table__;  holes __column__: the column, __among__: that it is one of the texts
SELECT DISTINCT __column__ AS found
FROM __table__
WHERE __among__
