-- check: the domains hold listed values, and every listed value is in one. Rows: values where this is not so.
--   columns   domain_code, value_code, protected (which must be true or false)
--   reads     __domains__(sub_table, code), __values__(code, protected)
SELECT d.code AS domain_code, v.code AS value_code, v.protected
FROM __domains__ AS d
FULL JOIN __values__ AS v ON d.code = v.code
WHERE d.code IS NULL OR v.code IS NULL OR v.protected IS NULL
