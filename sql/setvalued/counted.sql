-- counted: the published counts of the tables that were measured.
--   columns   clique, cell, count
--   reads     __marginals__(clique, cell, count)
SELECT clique, cell, count
FROM __marginals__
ORDER BY clique, cell
