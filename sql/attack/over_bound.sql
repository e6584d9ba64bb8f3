-- over_bound: buckets in which a value's share of what is listed exceeds its threshold, exactly.
--   columns   bid, code, records = count(g, x), listed = values that ST lists for g
--   reads     __composition__(bid, code, records) (sql/attack/composition.sql), __values__(code, numerator, denominator)
--   source    Wang et al., Definition of F'-privacy: count(g, x)/|g| <= f'; compared as integers
SELECT c.bid, c.code, c.records, g.listed
FROM __composition__ AS c
JOIN (SELECT bid, CAST(sum(records) AS BIGINT) AS listed FROM __composition__ GROUP BY bid) AS g ON c.bid = g.bid
JOIN __values__ AS v ON c.code = v.code
WHERE coalesce(CAST(c.records AS HUGEINT) * CAST(v.denominator AS HUGEINT) > CAST(v.numerator AS HUGEINT) * g.listed, TRUE)
ORDER BY c.bid, c.code
