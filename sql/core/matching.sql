-- matching: the number of rows that meet a condition.
--   columns   records
--   reads     __table__;  hole __filter__: predicate
SELECT count(*) AS records
FROM __table__
WHERE __filter__
