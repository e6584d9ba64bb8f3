-- fresh: the records that a release publishes for the first time, as they are published.
--   columns   id, q0.., s0..
--   reads     __marked__ (id, q0.., s0.., bid): the records, bid being 1 for those
--   holes     __columns__: r.q0.., r.s0..
SELECT r.id, __columns__
FROM __marked__ AS r
WHERE r.bid = 1
