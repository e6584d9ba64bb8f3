-- composed: which sensitive values the buckets list, by code.
--   columns   bid, code, records = count(g, x)
--   reads     __st__(bid, s0.., count), __values__(code, s0..)
--   holes     __filter__: which buckets;  __same_value__: NULL-safe equality of s and v
SELECT s.bid, v.code, s."count" AS records
FROM __st__ AS s
JOIN __values__ AS v ON __same_value__
WHERE __filter__
