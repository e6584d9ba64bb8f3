-- marks: a short digest of a column's value beside some names of a source: of several records the smallest.
--   columns   name, field, mark
--   reads     __source__;  __sample__(name)
--   holes     __name__: the text that names a record or person;  __field__: number of the column;
--             __mark__: the digest as an expression;  __keep__: predicate of the NULL policy
SELECT name, __field__ AS field, min(mark) AS mark
FROM (SELECT __name__ AS name, __mark__ AS mark FROM __source__ WHERE __keep__) AS marked
WHERE name IN (SELECT name FROM __sample__)
GROUP BY name
