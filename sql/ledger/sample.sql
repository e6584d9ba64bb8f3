-- sample: some of the names of a source: the same ones in every table that holds them.
--   columns   name
--   reads     __traces__(id, person);  holes __name__: t.id or t.person;  __digest__: of column name;  __most__: how many
SELECT name
FROM (SELECT DISTINCT __name__ AS name FROM __traces__ AS t) AS names
WHERE name IS NOT NULL
ORDER BY __digest__, name
LIMIT __most__
