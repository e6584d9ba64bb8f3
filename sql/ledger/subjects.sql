-- subjects: the records of one release in a ledger that are followed.
--   columns   id, trace, bid, value
--   reads     __subjects__(number, id, trace, bid, value);  hole __number__
SELECT s.id, s.trace, s.bid, s.value
FROM __subjects__ AS s
WHERE s.number = __number__
