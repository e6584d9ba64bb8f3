-- privsql_universe: the items.
--   columns   code, item
--   reads     __universe__(code, item)
SELECT code, item
FROM __universe__
ORDER BY code
