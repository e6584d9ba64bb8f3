-- ends: the first and the last name of a source in the order of text.
--   columns   least, greatest
--   reads     __traces__(id, person);  hole __name__: t.id or t.person
SELECT min(__name__) AS least, max(__name__) AS greatest
FROM __traces__ AS t
