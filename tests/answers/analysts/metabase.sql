-- count by a column
SELECT "main"."visits"."sex" AS "sex", COUNT(*) AS "count" FROM "main"."visits" GROUP BY "main"."visits"."sex" ORDER BY "main"."visits"."sex" ASC

-- count by month
SELECT CAST(DATE_TRUNC('month', "main"."visits"."day") AS date) AS "day", COUNT(*) AS "count"
FROM "main"."visits" GROUP BY CAST(DATE_TRUNC('month', "main"."visits"."day") AS date)
ORDER BY CAST(DATE_TRUNC('month', "main"."visits"."day") AS date) ASC

-- binned numbers
SELECT FLOOR(("main"."visits"."age" / 10.0)) * 10.0 AS "age", COUNT(*) AS "count" FROM "main"."visits"
GROUP BY FLOOR(("main"."visits"."age" / 10.0)) * 10.0 ORDER BY FLOOR(("main"."visits"."age" / 10.0)) * 10.0 ASC

-- sample of a table
SELECT "main"."visits"."age" AS "age", "main"."visits"."sex" AS "sex", "main"."visits"."disease" AS "disease" FROM "main"."visits" LIMIT 2000

-- field values
SELECT "main"."visits"."region" AS "region" FROM "main"."visits" GROUP BY "main"."visits"."region" ORDER BY "main"."visits"."region" ASC LIMIT 1000

-- fingerprint of columns
SELECT SUBSTRING("main"."visits"."sex", 1, 1234) AS "substring1", "main"."visits"."age" AS "age" FROM "main"."visits" LIMIT 10000

-- distinct values of a column
SELECT COUNT(DISTINCT "main"."visits"."region") AS "count" FROM "main"."visits"

-- joined table
SELECT "regions"."name" AS "regions__name", COUNT(*) AS "count"
FROM "main"."visits" LEFT JOIN "regions" AS "regions" ON "main"."visits"."region" = "regions"."code"
GROUP BY "regions"."name" ORDER BY "regions"."name" ASC

-- a question on a question
SELECT "source"."sex" AS "sex", COUNT(*) AS "count" FROM (
  SELECT "main"."visits"."age" AS "age", "main"."visits"."sex" AS "sex", "main"."visits"."disease" AS "disease"
  FROM "main"."visits" WHERE "main"."visits"."age" >= 18
) AS "source" WHERE "source"."disease" = 'flu' GROUP BY "source"."sex" ORDER BY "source"."sex" ASC

-- custom column
SELECT "source"."band" AS "band", COUNT(*) AS "count" FROM (
  SELECT CASE WHEN "main"."visits"."age" < 30 THEN 'young' ELSE 'older' END AS "band" FROM "main"."visits"
) AS "source" GROUP BY "source"."band" ORDER BY "source"."band" ASC

-- average of counts
SELECT AVG("source"."count") AS "avg" FROM (
  SELECT "main"."visits"."region" AS "region", COUNT(*) AS "count" FROM "main"."visits" GROUP BY "main"."visits"."region"
) AS "source"

-- cumulative count
SELECT "source"."day" AS "day", SUM("source"."count") OVER (ORDER BY "source"."day" ASC ROWS UNBOUNDED PRECEDING) AS "count"
FROM (SELECT DATE_TRUNC('month', "main"."visits"."day") AS "day", COUNT(*) AS "count" FROM "main"."visits" GROUP BY DATE_TRUNC('month', "main"."visits"."day")) AS "source"
ORDER BY "source"."day" ASC
