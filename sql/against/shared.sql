-- shared: pairs of groups of two releases that share quasi-identifiers and sensitive values, as multisets.
--   columns   a, b (groups), shared (records that agree in the quasi-identifiers), alike (that agree in the sensitive value),
--             size_a, size_b
--   reads     __first__(q0.., bid), __second__(q0.., bid): QIT;  __first_st__, __second_st__(bid, s0, count)
--   holes     __qi__: q0..;  __same_qi__, __same_value__: NULL-safe equality of x and y
--   source    thesis, Definition 5, on what is published
WITH q AS (
  SELECT x.bid AS a, y.bid AS b, sum(least(x.n, y.n)) AS shared
  FROM (SELECT __qi__, bid, count(*) AS n FROM __first__ GROUP BY __qi__, bid) AS x
  JOIN (SELECT __qi__, bid, count(*) AS n FROM __second__ GROUP BY __qi__, bid) AS y ON __same_qi__
  GROUP BY x.bid, y.bid
), s AS (
  SELECT x.bid AS a, y.bid AS b, sum(least(x."count", y."count")) AS alike
  FROM __first_st__ AS x
  JOIN __second_st__ AS y ON __same_value__
  GROUP BY x.bid, y.bid
)
SELECT q.a, q.b, q.shared, s.alike, m.size AS size_a, n.size AS size_b
FROM q
JOIN s ON q.a = s.a AND q.b = s.b
JOIN (SELECT bid, sum("count") AS size FROM __first_st__ GROUP BY bid) AS m ON q.a = m.bid
JOIN (SELECT bid, sum("count") AS size FROM __second_st__ GROUP BY bid) AS n ON q.b = n.bid
