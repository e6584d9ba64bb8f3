-- explore
SELECT visits.sex AS "visits.sex", COUNT(*) AS "visits.count" FROM visits GROUP BY 1 ORDER BY 2 DESC LIMIT 500

-- month dimension
SELECT (STRFTIME(DATE_TRUNC('month', visits.day), '%Y-%m')) AS "visits.month", COUNT(*) AS "visits.count" FROM visits GROUP BY 1 ORDER BY 1 DESC LIMIT 500

-- derived table
WITH adults AS (SELECT * FROM visits WHERE age >= 18)
SELECT adults.region AS "adults.region", COUNT(*) AS "adults.count" FROM adults GROUP BY 1 ORDER BY 2 DESC FETCH NEXT 500 ROWS ONLY

-- filtered measures
SELECT visits.region AS "visits.region",
  COUNT(CASE WHEN (visits.disease = 'flu') THEN 1 ELSE NULL END) AS "visits.flu_count",
  COUNT(CASE WHEN (visits.disease = 'cold') THEN 1 ELSE NULL END) AS "visits.cold_count"
FROM visits GROUP BY 1 ORDER BY 2 DESC LIMIT 500

-- filtered average
SELECT AVG(CASE WHEN visits.disease = 'flu' THEN visits.age ELSE NULL END) AS "visits.flu_age" FROM visits LIMIT 500

-- tiers
SELECT CASE WHEN visits.age < 30 THEN 'T00' WHEN visits.age >= 30 AND visits.age < 50 THEN 'T01' ELSE 'T02' END AS "visits.tier", COUNT(*) AS "n" FROM visits GROUP BY 1

-- totals row
SELECT COUNT(*) AS "visits.count", COALESCE(SUM(visits.stay), 0) AS "visits.total_stay" FROM visits LIMIT 1

-- suggestions
SELECT DISTINCT visits.region AS "visits.region" FROM visits ORDER BY visits.region LIMIT 1000
