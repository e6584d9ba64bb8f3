-- records: the source's columns under internal names, in canonical order.
--   columns   s0.. (sensitive), q0.. (quasi-identifiers)
--   reads     __source__: the publisher's table
--   holes     __sa__, __qi__: expressions named s0.., q0..;  __keep__: predicate of the NULL policy;
--             __sa_order__, __qi_order__: s0.., q0..
--   why       the order depends on the contents alone, so the same key and the same records give the same release
--             whatever order they lie in, and nothing of that order can leave; equal records are interchangeable.
SELECT __sa__, __qi__
FROM __source__
WHERE __keep__
ORDER BY __sa_order__ NULLS LAST, __qi_order__ NULLS LAST
