-- cut: the values of all columns, with parts in place of the bins that a question cuts.
--   columns   place, code, value, share
--   reads     __domains__(place, code, value, share): privsql_domains;  __parts__(code, value, share): parts of bins
--   holes     __place__: the column's number;  __codes__: the codes of the bins that are cut
SELECT place, code, value, share
FROM __domains__
WHERE NOT (place = __place__ AND code IN (__codes__))
UNION ALL
SELECT __place__ AS place, code, value, share
FROM __parts__ AS parts
