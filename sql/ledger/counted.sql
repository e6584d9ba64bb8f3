-- counted: how many records each trace stands for.
--   columns   trace, records
--   reads     __traces__(trace, records)
SELECT trace, sum(records) AS records
FROM __traces__
GROUP BY trace
