-- functions: the functions that DuckDB itself has, in lower case.
--   columns   name, kind (scalar, aggregate, window, macro, table, ..), stability, returned: a type, body: the tree of what a
--             macro stands for, as JSON
--   reads     nothing
--   why       only DuckDB's own list says which of its functions depend on chance, time or a setting
SELECT DISTINCT lower(function_name) AS name, function_type AS kind, coalesce(stability, '') AS stability,
  coalesce(return_type, '') AS returned,
  coalesce(CAST(json_serialize_sql('SELECT ' || macro_definition) AS VARCHAR), '') AS body
FROM duckdb_functions()
WHERE internal
