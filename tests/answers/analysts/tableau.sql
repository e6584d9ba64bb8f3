-- sum of records by a dimension
SELECT "visits"."sex" AS "sex", SUM(1) AS "sum:Number of Records:ok" FROM "main"."visits" "visits" GROUP BY 1

-- domain of a dimension
SELECT "visits"."region" AS "region" FROM "main"."visits" "visits" GROUP BY 1

-- filter and measure
SELECT "visits"."disease" AS "disease", COUNT(1) AS "cnt:ok" FROM "main"."visits" "visits"
WHERE (("visits"."age" >= 20) AND ("visits"."age" <= 60)) GROUP BY 1

-- empty check of a connection
SELECT 1 AS "one" FROM "main"."visits" "visits" HAVING (COUNT(1) > 0)

-- custom SQL
SELECT "Custom SQL Query"."sex" AS "sex", COUNT("Custom SQL Query"."age") AS "cnt:age:ok"
FROM (SELECT age, sex FROM visits WHERE disease = 'flu') "Custom SQL Query" GROUP BY 1

-- continuous months
SELECT DATE_TRUNC('MONTH', CAST("visits"."day" AS DATE)) AS "tmn:day:ok", AVG(CAST("visits"."stay" AS DOUBLE)) AS "avg:stay:ok"
FROM "main"."visits" "visits" GROUP BY 1

-- range of a measure
SELECT MIN("visits"."age") AS "TEMP(min)", MAX("visits"."age") AS "TEMP(max)", COUNT(1) AS "cnt" FROM "main"."visits" "visits" HAVING (COUNT(1) > 0)

-- top regions
SELECT "visits"."region" AS "region", COUNT(1) AS "cnt" FROM "main"."visits" "visits"
INNER JOIN (
  SELECT "visits"."region" AS "region", COUNT(1) AS "$__alias__0" FROM "main"."visits" "visits" GROUP BY 1 ORDER BY 2 DESC LIMIT 2
) "t0" ON ("visits"."region" = "t0"."region") GROUP BY 1

-- level of detail
SELECT "t0"."region" AS "region", AVG("t0"."n") AS "avg" FROM (
  SELECT "visits"."region" AS "region", "visits"."sex" AS "sex", COUNT(1) AS "n" FROM "main"."visits" "visits" GROUP BY 1, 2
) "t0" GROUP BY 1
