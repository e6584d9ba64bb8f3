-- hashes: a keyed hash of every value of a source's records.
--   columns   __hashes__, one for each column
--   reads     __source__;  __secret__(word): one row
--   holes     __values__: the columns' values, with names;  __hashes__: hashes of k.word and their texts;  __keep__:
--             predicate of the NULL policy
SELECT __hashes__
FROM (SELECT __values__ FROM __source__ WHERE __keep__) AS read
CROSS JOIN __secret__ AS k
