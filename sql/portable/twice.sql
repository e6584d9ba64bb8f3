-- twice: the hashes that several records have: equal ones, and some by chance.
--   columns   h
--   reads     __hashed__ (sql/portable/hashed.sql)
SELECT h
FROM __hashed__
GROUP BY h
HAVING count(*) > 1
