-- drawn: the records with one value each that a model drew.
--   columns   the quasi-identifiers, and the sensitive columns under names that say that they are drawn
--   reads     __records__: QIT with the numbers of its records, __drawn__(record, code), __values__
--   holes     __qi__: of r;  __sa__: of v, named;  __record__, __code__: columns as they lie
SELECT __qi__, __sa__
FROM __records__ AS r
JOIN __drawn__ AS d ON __record__ = d.record
JOIN __values__ AS v ON __code__ = d.code
ORDER BY __record__
