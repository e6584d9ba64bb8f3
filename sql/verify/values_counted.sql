-- values_counted: how many different values a column of a release has.
--   columns   entries (NULL is none)
--   reads     __table__;  holes __column__: the column
--   why       texts tell apart what is equal and written otherwise, such as 0.0 and -0.0
SELECT count(DISTINCT CAST(__column__ AS VARCHAR)) AS entries
FROM __table__
