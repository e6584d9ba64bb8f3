-- st: the published sensitive table.
--   columns   bid, the sensitive columns, count
--   reads     __composition__(bid, code, records): the layout counted, code = rank of the value in the domain;
--             __domain__ (sql/core/domain.sql)
--   holes     __sa__: s0.. under their own names;  __bid__, __count__: names
--   source    Wang et al., section 3.1 (ST)
SELECT c.bid AS __bid__, __sa__, c.records AS __count__
FROM __composition__ AS c
JOIN __domain__ AS d ON c.code = d.code
ORDER BY c.bid, c.code
