-- recognized: the names of a source beside which a release has marks.
--   columns   name, as names are compared
--   reads     __traces__(id, person);  __marks__(name): keyed hashes of names
--   holes     __name__: t.id or t.person as names are compared;  __hash__: of column name
SELECT DISTINCT name
FROM (SELECT __name__ AS name FROM __traces__ AS t) AS named
WHERE __hash__ IN (SELECT name FROM __marks__)
