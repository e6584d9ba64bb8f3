-- slicer
SELECT "_"."sex" AS "c1" FROM "main"."visits" AS "_" GROUP BY "_"."sex" ORDER BY "_"."sex" LIMIT 101

-- DirectQuery of a visual
SELECT "t0"."region" AS "c1", COUNT(*) AS "a0" FROM (
  SELECT "_"."age", "_"."sex", "_"."region", "_"."disease" FROM "main"."visits" AS "_"
) AS "t0" WHERE ("t0"."sex" = 'f') GROUP BY "t0"."region" LIMIT 1000001

-- preview of a table
SELECT "$Table"."age" AS "age", "$Table"."sex" AS "sex", "$Table"."region" AS "region" FROM "main"."visits" AS "$Table" LIMIT 1000

-- folded steps
SELECT "rows"."sex" AS "sex", COUNT(*) AS "Count" FROM (
  SELECT "_"."sex" FROM (SELECT "age", "sex", "disease" FROM "main"."visits") AS "_" WHERE "_"."age" > 30 AND "_"."disease" = 'cold'
) AS "rows" GROUP BY "sex"

-- measure with a condition
SELECT SUM(CASE WHEN "t"."disease" = 'flu' THEN "t"."stay" END) AS "a0" FROM "main"."visits" AS "t"

-- measure with a condition and a default
SELECT "t"."region" AS "c0", SUM(CASE WHEN "t"."disease" = 'flu' THEN "t"."stay" ELSE 0 END) AS "a0" FROM "main"."visits" AS "t" GROUP BY "t"."region"

-- semijoin of a dimension filter
SELECT COUNT(*) AS "a0" FROM "main"."visits" AS "t" WHERE "t"."region" IN (SELECT "code" FROM "regions" WHERE "population" > 500)

-- relationship
SELECT "r"."name" AS "c0", COUNT(*) AS "a0" FROM "main"."visits" AS "f" LEFT OUTER JOIN "regions" AS "r" ON ("f"."region" = "r"."code") GROUP BY "r"."name"

-- percentile of a measure
SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY "t"."age") AS "a0" FROM "main"."visits" AS "t"
