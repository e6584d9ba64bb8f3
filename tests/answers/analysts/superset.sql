-- filter values of a dashboard
SELECT DISTINCT sex FROM visits LIMIT 1000

-- filter values in the form of a chart
SELECT sex AS sex FROM main.visits GROUP BY sex ORDER BY sex ASC LIMIT 1000

-- filter values with a search
SELECT region AS region FROM main.visits WHERE region ILIKE '%o%' GROUP BY region LIMIT 1000

-- preview of a table in SQL Lab
SELECT * FROM main.visits LIMIT 100

-- columns of a virtual dataset
SELECT * FROM (SELECT * FROM visits) AS virtual_table LIMIT 0

-- bar chart
SELECT sex AS sex, COUNT(*) AS count FROM main.visits GROUP BY sex ORDER BY count DESC LIMIT 10000

-- bar chart over a virtual dataset
SELECT sex AS sex, COUNT(*) AS count
FROM (SELECT age, sex, region, disease FROM visits WHERE age >= 18) AS virtual_table
GROUP BY sex ORDER BY count DESC LIMIT 1000

-- pie chart over a virtual dataset with a filter
SELECT disease AS disease, count(*) AS count
FROM (SELECT * FROM visits) AS virtual_table
WHERE sex IN ('f') GROUP BY disease ORDER BY count DESC LIMIT 100

-- time series
SELECT DATE_TRUNC('month', day) AS day, COUNT(*) AS count FROM main.visits
WHERE day >= CAST('2020-01-01' AS DATE) AND day < CAST('2020-07-01' AS DATE)
GROUP BY DATE_TRUNC('month', day) ORDER BY count DESC LIMIT 10000

-- time series by a series limit
SELECT DATE_TRUNC('month', day) AS day, region AS region, COUNT(*) AS count
FROM main.visits JOIN (
  SELECT region AS region__, COUNT(*) AS mme_inner__ FROM main.visits GROUP BY region ORDER BY mme_inner__ DESC LIMIT 2
) AS series_limit ON region = region__
GROUP BY DATE_TRUNC('month', day), region ORDER BY count DESC LIMIT 10000

-- big number
SELECT COUNT(*) AS count FROM main.visits WHERE ((disease = 'flu')) LIMIT 50000

-- table with a share
SELECT region AS region, SUM(CASE WHEN disease = 'flu' THEN 1 ELSE 0 END) * 1.0 / COUNT(*) AS "flu share"
FROM main.visits GROUP BY region ORDER BY "flu share" DESC LIMIT 1000

-- histogram
SELECT FLOOR(age / 10) * 10 AS bin, COUNT(*) AS count FROM main.visits GROUP BY bin ORDER BY bin

-- row count of a table chart
SELECT COUNT(*) AS rowcount FROM (SELECT sex AS sex, region AS region, COUNT(*) AS count FROM main.visits GROUP BY sex, region) AS rowcount_qry

-- pivot table with totals
SELECT sex AS sex, region AS region, COUNT(*) AS count FROM main.visits GROUP BY GROUPING SETS ((sex, region), (sex), ()) LIMIT 10000
