-- names: the names of a source's records and persons, where what is published of records stands apart from them.
--   columns   id, person, trace = NULL, records = 0, value = NULL
--   reads     __source__;  holes __id__, __person__: the texts that name a record and its person, or NULL
SELECT DISTINCT __id__ AS id, __person__ AS person, CAST(NULL AS BIGINT) AS trace, 0 AS records, CAST(NULL AS VARCHAR) AS value
FROM __source__
