-- members: which record went to which group of a release.
--   columns   id, bid
--   reads     __assigned__: the records (sql/core/records.sql, with id) with their group; negative: held back
SELECT id, bid
FROM __assigned__ AS r
WHERE bid IS NULL OR bid >= 0
