-- traces: what records are followed by from release to release.
--   columns   id (text), person (text, or NULL), trace (a digest of what is published of the record), value (text, of
--             the sensitive column)
--   reads     __records__ (sql/core/records.sql, with id and person), whose order it keeps
--   holes     __person__: r.person, or NULL;  __trace__: the digest as an expression over r;  __value__: the value, or NULL
SELECT r.id, __person__ AS person, __trace__ AS trace, __value__ AS value
FROM __records__ AS r
