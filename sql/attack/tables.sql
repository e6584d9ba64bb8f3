-- tables: what tells an adversary of noisy tables about one record.
--   columns   scale of a table's noise, choice (budget of choosing it, NULL where nothing was chosen)
--   reads     __cliques__(clique, scale, choice, ..): privsql_cliques
SELECT scale, choice
FROM __cliques__
ORDER BY clique
