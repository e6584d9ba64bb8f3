-- totals: how many records have hashes, and sums over these that no order changes.
--   columns   records, __sums__
--   reads     __hashes__(high, low): 32 bits each
--   holes     __sums__: sums of columns of r, each of at most 16 bits, so that no sum overflows
SELECT count(*) AS records, __sums__
FROM __hashes__ AS r
