-- privsql_universe: the items, and where they lie in the taxonomy.
--   columns   code, item, node (of privsql_taxonomy), place (among the node's children)
--   reads     __universe__(code, item), __placed__(code, node, place)
SELECT u.code, u.item, p.node, p.place
FROM __universe__ AS u
JOIN __placed__ AS p ON u.code = p.code
ORDER BY u.code
