-- sampled: the values of some columns beside some names of a source.
--   columns   name, and those that are asked for
--   reads     __source__;  __sample__(name)
--   holes     __name__: the text that names a record or person;  __values__: expressions with their names;
--             __columns__: these names;  __keep__: predicate of the NULL policy
SELECT name, __columns__
FROM (SELECT __name__ AS name, __values__ FROM __source__ WHERE __keep__) AS read
WHERE name IN (SELECT name FROM __sample__)
