-- shown: the values that a column of a release has, as texts and in the order of its type, but for NULL; each once.
--   columns   value
--   reads     __records__
--   holes     __column__;  __most__: how many rows are wanted
SELECT CAST(__column__ AS VARCHAR) AS value
FROM __records__
WHERE __column__ IS NOT NULL
GROUP BY __column__
ORDER BY __column__
LIMIT __most__
