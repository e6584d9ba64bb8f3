-- crosstab
SELECT region, count(*) FILTER (WHERE sex = 'f') AS f, count(*) FILTER (WHERE sex = 'm') AS m FROM visits GROUP BY region ORDER BY region

-- share of the total by a scalar subquery
SELECT disease, 100.0 * count(*) / (SELECT count(*) FROM visits) AS percent FROM visits GROUP BY disease ORDER BY percent DESC

-- rate by a scalar subquery with a condition
SELECT 1.0 * count(*) / (SELECT count(*) FROM visits WHERE sex = 'f') AS rate FROM visits WHERE sex = 'f' AND disease = 'flu'

-- share of two sensitive counts
SELECT 1.0 * (SELECT count(*) FROM visits WHERE disease = 'flu') / (SELECT count(*) FROM visits WHERE disease = 'cold') AS ratio

-- two steps
WITH adults AS (SELECT * FROM visits WHERE age >= 18), flu AS (SELECT * FROM adults WHERE disease = 'flu')
SELECT region, count(*) AS n FROM flu GROUP BY region ORDER BY n DESC

-- above the mean age
SELECT count(*) FROM visits WHERE age > (SELECT avg(age) FROM visits)

-- running total
SELECT month, n, sum(n) OVER (ORDER BY month) AS total FROM (SELECT month(day) AS month, count(*) AS n FROM visits GROUP BY month(day)) ORDER BY month

-- change against the month before
SELECT month(day) AS month, count(*) AS n, count(*) - lag(count(*)) OVER (ORDER BY month(day)) AS change FROM visits GROUP BY month(day) ORDER BY month

-- top group by qualify
SELECT region, count(*) AS n FROM visits GROUP BY region QUALIFY row_number() OVER (ORDER BY count(*) DESC) <= 2

-- largest count
SELECT max(n) FROM (SELECT region, count(*) AS n FROM visits GROUP BY region)

-- total of subtotals
SELECT sum(n) AS n FROM (SELECT sex, disease, count(*) AS n FROM visits GROUP BY sex, disease) WHERE disease = 'flu'

-- rollup with labels
SELECT CASE WHEN grouping(region) = 1 THEN 'all' ELSE region END AS region, count(*) AS n FROM visits GROUP BY ROLLUP (region)

-- interval by functions
SELECT region, count(*) AS n, low(count(*)) AS lo, high(count(*)) AS hi, std_error(count(*)) AS se FROM visits WHERE disease = 'flu' GROUP BY region

-- describe
SELECT count(age) AS count, avg(age) AS mean, min(age) AS min, max(age) AS max, stddev(age) AS std FROM visits

-- rows of records
SELECT age, disease FROM visits WHERE disease = 'flu'

-- correlation
SELECT corr(age, stay) FROM visits

-- value counts with a having
SELECT disease, count(*) AS n FROM visits GROUP BY disease HAVING count(*) > 20 ORDER BY n DESC

-- string aggregate
SELECT region, string_agg(disease, ', ') FROM visits GROUP BY region
