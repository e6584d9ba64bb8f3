-- value_counts: the records of each sensitive value over all buckets, with the value's threshold.
--   columns   text of each sensitive column, records = o_i, numerator, denominator
--   reads     __st__, __thresholds__
--   holes     __labels__: st.s0.. as text;  __sa__: st.s0..;  __same_value__
SELECT __labels__, sum(st."count") AS records, max(t.numerator) AS numerator, max(t.denominator) AS denominator
FROM __st__ AS st
LEFT JOIN __thresholds__ AS t ON __same_value__
GROUP BY __sa__
