-- time series by day
SELECT date_trunc('week', day) AS "time", count(*) AS "value" FROM visits WHERE day BETWEEN '2020-01-01' AND '2020-06-30' GROUP BY 1 ORDER BY 1

-- stat panel
SELECT count(*) FROM visits WHERE disease = 'flu'

-- several series
SELECT date_trunc('month', day) AS "time", sex AS metric, count(*) AS "value" FROM visits GROUP BY 1, 2 ORDER BY 1, 2

-- variable
SELECT DISTINCT region AS __text, region AS __value FROM visits ORDER BY 1

-- union of alerts
SELECT 'flu' AS metric, count(*) AS "value" FROM visits WHERE disease = 'flu' UNION ALL SELECT 'cold', count(*) FROM visits WHERE disease = 'cold'
