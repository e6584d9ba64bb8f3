-- model_sums: how many records' and listed values' beliefs do not add up.
--   columns   records: whose beliefs do not add up to 1, lists: of a bucket's values, whose do not add up to a whole number
--   reads     __weights__(record, bid, code, weight) of a database file of privsql's; so this file is DuckDB's own
--   holes     __tolerance__: of a sum
SELECT (
  SELECT count(*)
  FROM (SELECT record, sum(weight) AS total, min(weight) AS least FROM __weights__ GROUP BY record) AS of_record
  WHERE NOT (abs(total - 1) <= __tolerance__ AND least >= 0)
) AS records, (
  SELECT count(*)
  FROM (SELECT bid, code, sum(weight) AS total FROM __weights__ GROUP BY bid, code) AS of_list
  WHERE NOT abs(total - round(total)) <= __tolerance__
) AS lists
