-- weights: how many records each set has.
--   columns   records, sets in order
--   reads     __baskets__(basket, items, records)
SELECT records
FROM __baskets__
ORDER BY basket
