-- intersected: what the groups of two releases leave for everyone who is alone with the quasi-identifiers in both.
--   columns   a, b (groups), people, total = sum c1 c2/o, most = max c1 c2/o over the values that both groups list
--   reads     __first__, __second__(q0.., bid): QIT;  __first_st__, __second_st__(s0.., bid, count): ST
--   holes     __qi__: q0..;  __sa__: s0..;
--             __same_qi__: NULL-safe equality of a and b;  __same_value__: of s and t;  __same_total__: of s and o
WITH a AS (
  SELECT __qi__, min(bid) AS bid
  FROM __first__
  GROUP BY __qi__
  HAVING count(*) = 1
), b AS (
  SELECT __qi__, min(bid) AS bid
  FROM __second__
  GROUP BY __qi__
  HAVING count(*) = 1
), met AS (
  SELECT a.bid AS a, b.bid AS b, count(*) AS people
  FROM a
  JOIN b ON __same_qi__
  GROUP BY a.bid, b.bid
), o AS (
  SELECT __sa__, sum("count") AS records
  FROM __first_st__
  GROUP BY __sa__
)
SELECT
  met.a,
  met.b,
  max(met.people) AS people,
  sum(CAST(s."count" AS DOUBLE) * t."count" / o.records) AS total,
  max(CAST(s."count" AS DOUBLE) * t."count" / o.records) AS most
FROM met
JOIN __first_st__ AS s ON met.a = s.bid
JOIN __second_st__ AS t ON met.b = t.bid AND __same_value__
JOIN o ON __same_total__
GROUP BY met.a, met.b
