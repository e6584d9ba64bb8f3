-- nameless: what records without an id are known by: equal ones are counted.
--   columns   id = NULL, trace (a digest of what is published of the record), records, value = NULL
--   reads     __source__;  holes __trace__: the digest as an expression;  __keep__: predicate of the NULL policy
SELECT CAST(NULL AS VARCHAR) AS id, trace, count(*) AS records, CAST(NULL AS VARCHAR) AS value
FROM (SELECT __trace__ AS trace FROM __source__ WHERE __keep__) AS read
GROUP BY trace
