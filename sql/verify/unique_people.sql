-- unique_people: how many published records are alone with their quasi-identifiers, of how many.
--   columns   alone, records
--   reads     __rows__ (one row for each record);  holes __columns__: the quasi-identifiers
SELECT CAST(sum(CASE WHEN n = 1 THEN 1 ELSE 0 END) AS BIGINT) AS alone, CAST(sum(n) AS BIGINT) AS records
FROM (SELECT count(*) AS n FROM __rows__ GROUP BY __columns__) AS kinds
