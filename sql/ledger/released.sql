-- released: traces of the records that a release has taken in, without those that it holds back.
--   columns   those of traces
--   reads     __traces__(id, ..);  __subjects__(number, id): the followed records of releases
--   holes     __number__: that of the release
SELECT t.*
FROM __traces__ AS t
WHERE t.id IN (SELECT s.id FROM __subjects__ AS s WHERE s.number = __number__)
