-- taken: the records of a release that an earlier version wrote down, as a ledger keeps them.
--   columns   number, id, trace, records = 1, bid, value
--   reads     __members__(id, bid): that release;  __known__(id, trace, value): the records of it and of those before it
--   holes     __number__
SELECT __number__ AS number, CAST(m.id AS VARCHAR) AS id, k.trace, 1 AS records, m.bid, k.value
FROM __members__ AS m
LEFT JOIN __known__ AS k ON CAST(m.id AS VARCHAR) = k.id
