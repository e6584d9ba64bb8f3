-- distinct: about how many different values columns have in some records.
--   columns   those of __counts__
--   reads     __source__
--   why so    the engine's own estimate, off by a few percent, takes one pass over all columns
--   holes     __values__: the columns' values, with names;  __counts__: estimates of these;  __keep__: predicate of the
--             NULL policy;  __most__: records that are looked at
SELECT __counts__
FROM (SELECT __values__ FROM __source__ WHERE __keep__ LIMIT __most__) AS read
