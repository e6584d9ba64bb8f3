-- chosen: what a procedure without a key would take of persons who are alone with their quasi-identifiers.
--   columns   pos (of the released record), code (a value that it may have), prior (of that value), hash: of person, record and copy 1, times (how
--             many records the person has), is_true (whether it is the value)
--   reads     __pairs__(pos, code, prior); __rows__(pos, q0..) of the release; __values__(code, s0..);  __chosen__ (sql/core/people.sql):
--             the records that were chosen; __people__: all of them
--   holes     __same_qi__: equality of a and c;  __same_value__: equality of c and v;  __hash__: of c.person, a and v
SELECT x.pos, x.code, x.prior, __hash__ AS hash, n.times, __same_value__ AS is_true
FROM __pairs__ AS x
JOIN __rows__ AS a ON x.pos = a.pos
JOIN __values__ AS v ON x.code = v.code
JOIN __chosen__ AS c ON __same_qi__
JOIN (SELECT o.person, count(*) AS times FROM __people__ AS o GROUP BY o.person HAVING count(*) > 1) AS n ON c.person = n.person
ORDER BY x.pos, x.code
