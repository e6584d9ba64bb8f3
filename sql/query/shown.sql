-- shown: the values that a column of a release has, as texts and in the order of its type, each once; NULL is the last.
--   columns   value
--   reads     __records__
--   holes     __column__;  __most__: how many rows are wanted
SELECT CAST(__column__ AS VARCHAR) AS value
FROM __records__
GROUP BY __column__
ORDER BY __column__ NULLS LAST
LIMIT __most__
