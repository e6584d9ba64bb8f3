-- recorded: whole records of a release or a source as marks: -1 stands for all columns.
--   columns   name, field = -1, mark
--   reads     __traces__(id, trace);  hole __name__: t.id as names are compared
SELECT __name__ AS name, -1 AS field, t.trace AS mark
FROM __traces__ AS t
WHERE t.id IS NOT NULL
