-- check: sub-tables hold the records and the values that are stated. Rows: sub-tables where they do not.
--   columns   sub_table, records and size as stated, held (records found), listed (values of its domain),
--             guarded (protected values of its domain, of which there must be one)
--   reads     __perturbed__(sub_table, ..), __subtables__(sub_table, records, size), __domains__(sub_table, code),
--             __values__(code, protected)
WITH held AS (
  SELECT sub_table, count(*) AS held
  FROM __perturbed__
  GROUP BY sub_table
), listed AS (
  SELECT d.sub_table, count(DISTINCT d.code) AS listed, sum(CASE WHEN v.protected THEN 1 ELSE 0 END) AS guarded
  FROM __domains__ AS d
  JOIN __values__ AS v ON d.code = v.code
  GROUP BY d.sub_table
)
SELECT coalesce(t.sub_table, h.sub_table, l.sub_table) AS sub_table, t.records, t.size, h.held, l.listed, l.guarded
FROM __subtables__ AS t
FULL JOIN held AS h ON t.sub_table = h.sub_table
FULL JOIN listed AS l ON t.sub_table = l.sub_table
WHERE t.records IS DISTINCT FROM h.held OR t.size IS DISTINCT FROM l.listed OR coalesce(t.size < 2 OR l.guarded < 1, TRUE)
