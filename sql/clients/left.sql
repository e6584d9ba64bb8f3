-- left: the share of a sum of variances that is the variance of an estimated count, of records that a release divides
-- among buckets: 1 - n/N for one value beside n of all N records, of which all are known together.
--   columns   share
--   reads     __sums__
--   holes     __alike__: whether all rows have one variance, as only those of one value do;  __number__: of rows;
--             __records__: N
--   why       n different x out of N that add up to a constant have covariances -v/(N - 1), so that their sum has the
--             variance n v - n (n - 1) v/(N - 1) = n v (N - n)/(N - 1). Rows of several values do not tell how many records
--             they are about. Their estimates go against each other, so that the whole sum is more than enough
SELECT CASE WHEN __alike__ THEN greatest(0, 1 - __number__ / __records__) ELSE 1 END AS share
FROM __sums__
