-- check: as many listed values of a bucket as it has fakes belong to nobody, not more. Rows: buckets where more do.
--   columns   bid, unexplained = listed values that no record of the source with quasi-identifiers of the bucket has
--   reads     __qit__(q0.., bid), __st__(bid, s0..), __records__ (sql/core/records.sql)
--   holes     __qi__, __sa__: q0.. and s0..;  __sa_real__: r.s0..;  __fakes__: how many a bucket has;
--             __same_qi__: NULL-safe equality of q and r;  __same_value__: of st and k
WITH kinds AS (
  SELECT DISTINCT __qi__, __sa__
  FROM __records__
), known AS (
  SELECT DISTINCT q.bid, __sa_real__
  FROM __qit__ AS q
  JOIN kinds AS r ON __same_qi__
)
SELECT st.bid, count(*) AS unexplained
FROM __st__ AS st
LEFT JOIN known AS k ON st.bid = k.bid AND __same_value__
WHERE k.bid IS NULL
GROUP BY st.bid
HAVING coalesce(count(*) > __fakes__, TRUE)
