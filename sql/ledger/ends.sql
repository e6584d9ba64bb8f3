-- ends: the first and the last name of a source in the order of text, and how many texts remain without digits.
--   columns   least, greatest, letters
--   reads     __traces__(id, person)
--   holes     __name__: t.id or t.person as names are compared;  __letters__: column name without digits
SELECT min(name) AS least, max(name) AS greatest, count(DISTINCT __letters__) AS letters
FROM (SELECT __name__ AS name FROM __traces__ AS t) AS named
