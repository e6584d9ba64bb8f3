-- overlapping: the pairs that an adversary takes for overlapping.
--   columns   a, b
--   reads     __shared__ (sql/against/shared.sql)
--   why       a group that another one holds whole, quasi-identifiers and values, lies in it; what it shares with others is chance
SELECT p.a, p.b
FROM __shared__ AS p
LEFT JOIN (SELECT a, max(b) AS b FROM __shared__ WHERE shared = size_a AND alike = size_a GROUP BY a) AS inside ON p.a = inside.a
LEFT JOIN (SELECT b, max(a) AS a FROM __shared__ WHERE shared = size_b AND alike = size_b GROUP BY b) AS around ON p.b = around.b
WHERE (inside.a IS NULL AND around.b IS NULL)
  OR (p.shared = p.size_a AND p.alike = p.size_a)
  OR (p.shared = p.size_b AND p.alike = p.size_b)
