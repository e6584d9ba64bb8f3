-- hashed_names: keyed hashes of the names of a source, sorted.
--   columns   kind (ids or persons), name
--   reads     __traces__(id, person);  holes __kind__;  __name__: t.id or t.person as names are compared;  __hash__: of
--             column name
SELECT DISTINCT __kind__ AS kind, __hash__ AS name
FROM (SELECT __name__ AS name FROM __traces__ AS t) AS named
WHERE name IS NOT NULL
ORDER BY name
