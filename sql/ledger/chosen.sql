-- chosen: the records that some releases of a ledger hold, which a later choice among the records of persons takes again.
--   columns   id, trace
--   reads     __subjects__(number, id, trace);  hole __among__: predicate for s.number
SELECT DISTINCT s.id, s.trace
FROM __subjects__ AS s
WHERE __among__
