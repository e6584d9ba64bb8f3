-- overlap: how many of the records are in an earlier release.
--   columns   known
--   reads     __ids__(id), __known__(id): the records of earlier releases
SELECT count(*) AS known
FROM __ids__ AS i
WHERE i.id IN (SELECT id FROM __known__)
