-- interval: what the functions n, low and high of a release make of the rows of NAME_weighted that a reader selects: the
-- estimated count, and the ends of an interval that holds the true one in 95 of 100 questions.
--   columns   n, low, high: 0 where no row is selected; ends below 0 are 0
--   reads     __sums__: of weights and variances, both NULL where no row is selected
--   holes     __weight__, __variance__: the sums;  __left__: the share of the variance that is left (sql/clients/left.sql,
--             or 1);  __skew__: by how much the variance of an estimate grows with the true count t
--   source    Wilson 1927: the ends are those t with (n - t)^2 = 1.96^2 (v + skew t), where the sum of variances is
--             v + skew n. So t = n + 1.96^2/2 skew -+ 1.96 sqrt(sum of variances + 1.96^2/4 skew^2)
--   why       both ends are rounded outwards by a billionth, since sums of doubles err
SELECT
  coalesce(__weight__, 0) AS n,
  greatest(0, coalesce(__weight__ + 1.9208 * __skew__ - 1.96 * sqrt(__variance__ * __left__ + 0.9604 * __skew__ * __skew__) - 0.000000001 * (1 + greatest(__weight__, -__weight__)), 0)) AS low,
  greatest(0, coalesce(__weight__ + 1.9208 * __skew__ + 1.96 * sqrt(__variance__ * __left__ + 0.9604 * __skew__ * __skew__) + 0.000000001 * (1 + greatest(__weight__, -__weight__)), 0)) AS high
FROM __sums__
