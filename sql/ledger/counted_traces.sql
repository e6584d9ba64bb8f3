-- counted_traces: what records are known by that are not followed one by one: equal ones are counted.
--   columns   id, person, trace (a digest of what is published of the record), records, value = NULL
--   reads     __source__;  holes __id__, __person__: the texts that name a record and its person, or NULL;
--             __trace__: the digest as an expression;  __keep__: predicate of the NULL policy
SELECT id, person, trace, count(*) AS records, CAST(NULL AS VARCHAR) AS value
FROM (SELECT __id__ AS id, __person__ AS person, __trace__ AS trace FROM __source__ WHERE __keep__) AS read
GROUP BY id, person, trace
