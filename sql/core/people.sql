-- people: the records of a source with the persons that they are of, as they are published.
--   columns   person (text), q0.., s0..
--   reads     __source__;  holes __person__: the text that names a person;  __columns__: how q0.., s0.. are read;
--             __keep__: the records that the NULL policy keeps
SELECT __person__ AS person, __columns__
FROM __source__
WHERE __keep__
