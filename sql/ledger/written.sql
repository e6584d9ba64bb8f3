-- written: the records of a release that are followed, as a ledger stores them.
--   columns   id, trace, bid (the group), value
--   reads     __assigned__: traces (sql/ledger/traces.sql), perhaps with the group of each
--   holes     __bid__: the group as an expression over a, negative where a record is held back
SELECT a.id, a.trace, __bid__ AS bid, a.value
FROM __assigned__ AS a
WHERE __bid__ IS NULL OR __bid__ >= 0
