-- refined: the common refinement of a partition with one more release.
--   columns   id, atom
--   reads     __atoms__(id, atom), __members__(id, bid)
SELECT coalesce(t.id, m.id) AS id, dense_rank() OVER (ORDER BY t.atom, m.bid) AS atom
FROM __atoms__ AS t
FULL JOIN __members__ AS m ON t.id = m.id
