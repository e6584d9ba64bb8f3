-- subjects: the records of one release in a ledger.
--   columns   id, person, trace, records, bid, value
--   reads     __subjects__(number, id, person, trace, records, bid, value);  hole __number__
SELECT s.id, s.person, s.trace, s.records, s.bid, s.value
FROM __subjects__ AS s
WHERE s.number = __number__
