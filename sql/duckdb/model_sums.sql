-- model_sums: how many records' and listed values' beliefs do not add up, and how many records have no drawn value.
--   columns   records: whose beliefs do not add up to 1, lists: of a bucket's values, whose do not add up to a whole number,
--             undrawn: records with a drawn value that their bucket does not list, or that are not in the completed tables
--   reads     __weights__(record, bid, code, weight) and __completed__(record, and columns of codes) of a database file of
--             privsql's; so this file is DuckDB's own
--   holes     __tolerance__: of a sum;  __drawn__: the list of the columns of codes
SELECT (
  SELECT count(*)
  FROM (SELECT record, sum(weight) AS total, min(weight) AS least FROM __weights__ GROUP BY record) AS of_record
  WHERE NOT (abs(total - 1) <= __tolerance__ AND least >= 0)
) AS records, (
  SELECT count(*)
  FROM (SELECT bid, code, sum(weight) AS total FROM __weights__ GROUP BY bid, code) AS of_list
  WHERE NOT abs(total - round(total)) <= __tolerance__
) AS lists, (
  SELECT count(*)
  FROM (SELECT record, list(code) AS codes FROM __weights__ GROUP BY record) AS listed
  FULL JOIN __completed__ AS c ON c.record = listed.record
  WHERE c.record IS NULL OR NOT coalesce(list_has_all(codes, __drawn__), FALSE)
) AS undrawn
