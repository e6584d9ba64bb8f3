-- ids: the ids of all records that some releases of a ledger hold.
--   columns   id
--   reads     __subjects__(number, id);  hole __among__: predicate for s.number
SELECT s.id
FROM __subjects__ AS s
WHERE __among__
