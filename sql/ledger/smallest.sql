-- smallest: the smallest hashes of records.
--   columns   hash, of 63 bits; records, that have it; in order
--   reads     __hashes__(high, low): 32 bits each, of which the last one is left out
--   holes     __lower__: the lower half of a number but its last bit;  __limit__: hashes are at most this;  __most__: how many of them
--   why       with a limit only so many are grouped and sorted, whatever the table
SELECT hash, count(*) AS records
FROM (SELECT r.high * 2147483648 + __lower__ AS hash FROM __hashes__ AS r) AS read
WHERE hash <= __limit__
GROUP BY hash
ORDER BY hash
LIMIT __most__
