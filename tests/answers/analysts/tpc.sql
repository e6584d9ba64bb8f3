-- H1: pricing summary
SELECT sex, region, sum(stay) AS sum_stay, avg(stay) AS avg_stay, avg(age) AS avg_age, count(*) AS count_order
FROM visits WHERE day <= DATE '2020-12-01' - INTERVAL 90 DAY GROUP BY sex, region ORDER BY sex, region

-- H4: exists
SELECT sex, count(*) AS order_count FROM visits v
WHERE day >= DATE '2020-01-01' AND day < DATE '2020-01-01' + INTERVAL 3 MONTH
  AND EXISTS (SELECT * FROM regions r WHERE r.code = v.region AND r.population > 500)
GROUP BY sex ORDER BY sex

-- H5: comma joins
SELECT name, sum(stay) AS revenue FROM visits v, regions r WHERE v.region = r.code AND r.coast AND v.day >= DATE '2020-01-01' GROUP BY name ORDER BY revenue DESC

-- H6: forecast
SELECT sum(stay * 2) AS revenue FROM visits WHERE day >= DATE '2020-01-01' AND day < DATE '2020-01-01' + INTERVAL 1 YEAR AND stay BETWEEN 2 AND 6 AND age < 40

-- H8: market share
SELECT r_year, sum(CASE WHEN nation = 'North' THEN volume ELSE 0 END) * 1.0 / sum(volume) AS mkt_share
FROM (SELECT EXTRACT(year FROM day) AS r_year, stay AS volume, name AS nation FROM visits, regions WHERE region = code AND disease = 'flu') AS all_nations
GROUP BY r_year ORDER BY r_year

-- H12: high and low lines
SELECT region, sum(CASE WHEN disease = 'flu' OR disease = 'cold' THEN 1 ELSE 0 END) AS high_line_count,
  sum(CASE WHEN disease <> 'flu' AND disease <> 'cold' THEN 1 ELSE 0 END) AS low_line_count
FROM visits WHERE sex IN ('f', 'm') GROUP BY region ORDER BY region

-- H13: distribution of counts
SELECT c_count, count(*) AS custdist FROM (SELECT code, count(age) AS c_count FROM regions LEFT JOIN visits ON code = region GROUP BY code) AS c_orders
GROUP BY c_count ORDER BY custdist DESC, c_count DESC

-- H14: promotion effect
SELECT 100.00 * sum(CASE WHEN name LIKE 'N%' THEN stay ELSE 0 END) / sum(stay) AS promo FROM visits, regions WHERE region = code AND disease = 'flu'

-- H15: top supplier
WITH revenue AS (SELECT region AS supplier_no, sum(stay) AS total FROM visits GROUP BY region)
SELECT supplier_no, total FROM revenue WHERE total = (SELECT max(total) FROM revenue) ORDER BY supplier_no

-- H17: below a share of the mean
SELECT sum(stay) / 7.0 AS avg_yearly FROM visits WHERE stay < (SELECT 0.5 * avg(stay) FROM visits)

-- H19: a disjunction of conjunctions
SELECT sum(stay) AS revenue FROM visits, regions
WHERE (region = code AND name = 'North' AND age BETWEEN 20 AND 40) OR (region = code AND name = 'South' AND age BETWEEN 30 AND 60)

-- H22: above the average of a group
SELECT sex, count(*) AS numcust FROM (SELECT sex, age FROM visits WHERE age > (SELECT avg(age) FROM visits WHERE sex IN ('f', 'm')) AND NOT EXISTS (SELECT * FROM regions WHERE code = region AND coast)) AS custsale
GROUP BY sex ORDER BY sex

-- DS9: buckets of counts
SELECT CASE WHEN (SELECT count(*) FROM visits WHERE age BETWEEN 20 AND 29) > 50 THEN 'many' ELSE 'few' END AS bucket1

-- DS20: ratio to the total of a class
SELECT sex, region, sum(stay) AS revenue, sum(stay) * 100.0 / sum(sum(stay)) OVER (PARTITION BY sex) AS revenueratio FROM visits GROUP BY sex, region ORDER BY sex, region

-- DS27: rollup with grouping
SELECT sex, region, grouping(region) AS g_region, avg(age) AS agg1 FROM visits GROUP BY ROLLUP (sex, region) ORDER BY sex, region
