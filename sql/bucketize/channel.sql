-- privsql_channel: how often two values meet in buckets of one size. It follows from ST; it is kept because an estimate needs it.
--   columns   size, first, second (codes of privsql_values, first <= second), pairs = sum_g count(g, first) * count(g, second)
--   reads     __meetings__(size, first, second, pairs)
SELECT size, first, second, pairs
FROM __meetings__
ORDER BY size, first, second
