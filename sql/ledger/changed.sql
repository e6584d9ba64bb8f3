-- changed: records of an earlier release that are no longer there or no longer the same, in a table that only grows.
--   columns   id, fate (deleted or changed)
--   reads     __traces__(id, trace): the records of the source;  __known__(id, trace): those of the release
SELECT k.id, CASE WHEN t.id IS NULL THEN 'deleted' ELSE 'changed' END AS fate
FROM __known__ AS k
LEFT JOIN __traces__ AS t ON k.id = t.id
WHERE t.id IS NULL OR t.trace <> k.trace
ORDER BY k.id
