-- rows: the different published rows, numbered.
--   columns   row, records, and the columns
--   reads     __published__;  holes __columns__: what is compared;  __count__: for how many records a row stands
SELECT row_number() OVER (ORDER BY __columns__) - 1 AS row, CAST(sum(__count__) AS BIGINT) AS records, __columns__
FROM __published__
GROUP BY __columns__
