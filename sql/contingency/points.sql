-- points: the values of one column, typed, with their codes and shares.
--   columns   c_k (code), the column, share_k;  __columns__: these three, named
--   reads     __domains__(place, code, value, share): privsql_domains;  hole __place__: the column's number
SELECT __columns__
FROM __domains__
WHERE place = __place__
