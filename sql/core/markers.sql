-- markers: which texts that stand for a missing value a column has.
--   columns   marker
--   reads     __source__;  holes __column__, __marked__: its value is such a text, as ? and NA are
SELECT DISTINCT __column__ AS marker FROM __source__ WHERE __marked__ ORDER BY marker
