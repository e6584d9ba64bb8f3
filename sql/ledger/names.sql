-- names: the names of a source's records and persons.
--   columns   id, person
--   reads     __source__
--   holes     __id__, __person__: the texts that name a record and its person, or NULL;  __keep__: predicate of the NULL
--             policy
SELECT __id__ AS id, __person__ AS person
FROM __source__
WHERE __keep__
