-- columns of a table
SELECT * FROM "visits" AS "q01" WHERE (0 = 1)

-- head
SELECT "visits".* FROM "visits" LIMIT 6

-- count
SELECT "sex", COUNT(*) AS "n" FROM "visits" GROUP BY "sex"

-- filter and summarise
SELECT "region", COUNT(*) AS "n", AVG("age") AS "age" FROM (SELECT "visits".* FROM "visits" WHERE ("disease" = 'flu')) AS "q01" GROUP BY "region"

-- mutate, then count
SELECT "decade", COUNT(*) AS "n" FROM (SELECT "visits".*, FLOOR("age" / 10.0) * 10.0 AS "decade" FROM "visits") AS "q01" GROUP BY "decade"

-- two steps of mutate
SELECT "old", COUNT(*) AS "n" FROM (
  SELECT "q01".*, "decade" >= 5 AS "old" FROM (SELECT "visits".*, FLOOR("age" / 10.0) AS "decade" FROM "visits") AS "q01"
) AS "q01" GROUP BY "old"

-- count, then share of the total
SELECT "q01".*, "n" / SUM("n") OVER () AS "share" FROM (SELECT "region", COUNT(*) AS "n" FROM "visits" GROUP BY "region") AS "q01"

-- semi_join
SELECT COUNT(*) AS "n" FROM (
  SELECT "LHS".* FROM "visits" AS "LHS" WHERE EXISTS (SELECT 1 FROM "regions" AS "RHS" WHERE ("LHS"."region" = "RHS"."code") AND ("RHS"."coast"))
) AS "q01"

-- anti_join
SELECT COUNT(*) AS "n" FROM (
  SELECT "visits".* FROM "visits" WHERE NOT EXISTS (SELECT 1 FROM "regions" WHERE ("visits"."region" = "regions"."code") AND ("regions"."coast"))
) AS "q01"

-- left_join
SELECT "name", COUNT(*) AS "n" FROM (SELECT "LHS".*, "name" FROM "visits" AS "LHS" LEFT JOIN "regions" ON ("LHS"."region" = "regions"."code")) AS "q01" GROUP BY "name"

-- rank of groups
SELECT "region", "n", RANK() OVER (ORDER BY "n" DESC) AS "rank" FROM (SELECT "region", COUNT(*) AS "n" FROM "visits" GROUP BY "region") AS "q01"

-- number of distinct values
SELECT COUNT(DISTINCT "region") AS "n" FROM "visits"

-- distinct rows
SELECT DISTINCT "sex", "region" FROM "visits"

-- quantiles
SELECT QUANTILE_CONT("age", 0.9) AS "p90" FROM "visits"

-- slice of the largest group
SELECT "region", "n" FROM (
  SELECT "q01".*, RANK() OVER (ORDER BY "n" DESC) AS "col01" FROM (SELECT "region", COUNT(*) AS "n" FROM "visits" GROUP BY "region") AS "q01"
) AS "q01" WHERE ("col01" <= 1)
