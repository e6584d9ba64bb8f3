-- extent: how much text a table of keys and values holds, counted up to 101 rows.
--   columns   entries, length in bytes
--   reads     __table__(key, value)
--   why       the length of text in bytes is called otherwise elsewhere
SELECT count(*) AS entries, coalesce(sum(coalesce(strlen("key"), 0) + coalesce(strlen("value"), 0)), 0) AS length
FROM (SELECT "key", "value" FROM __table__ LIMIT 101) AS begun
