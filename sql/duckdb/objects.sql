-- objects: everything that a user has put into a database, to see that a release holds nothing that it does not state.
--   columns   kind, name, text (its definition, where that matters), schema_name (in which it lies)
--   reads     DuckDB's catalog; so this file is DuckDB's own, outside the portable subset
--   why so    functions are those of system.main, whatever the database holds; what it says is internal is listed, too;
--             a function of several forms is one object; its text begins with the most parameters that one of them has
--   holes     __database__: the database's name as an expression
SELECT kind, name, text, schema_name
FROM (
  SELECT 'table' AS kind, CASE WHEN schema_name = 'main' THEN table_name ELSE schema_name || '.' || table_name END AS name, sql AS text, database_name, schema_name FROM system.main.duckdb_tables()
  UNION ALL
  SELECT 'view', CASE WHEN schema_name = 'main' THEN view_name ELSE schema_name || '.' || view_name END, sql, database_name, schema_name FROM system.main.duckdb_views()
  UNION ALL
  SELECT 'index', index_name, sql, database_name, schema_name FROM system.main.duckdb_indexes()
  UNION ALL
  SELECT 'sequence', sequence_name, '', database_name, schema_name FROM system.main.duckdb_sequences()
  UNION ALL
  SELECT 'function', function_name, max(len(parameters)) || ' ' || string_agg(CAST(row(function_type, parameters, parameter_types, macro_definition, description, comment, tags) AS VARCHAR), '; ' ORDER BY macro_definition), database_name, schema_name FROM system.main.duckdb_functions() WHERE database_name = __database__ GROUP BY function_name, database_name, schema_name
  UNION ALL
  SELECT 'type', type_name, logical_type, database_name, schema_name FROM system.main.duckdb_types() WHERE NOT internal
  UNION ALL
  SELECT 'schema', schema_name, '', database_name, schema_name FROM system.main.duckdb_schemas() WHERE schema_name <> 'main'
  UNION ALL
  SELECT 'trigger', trigger_name, sql, database_name, schema_name FROM system.main.duckdb_triggers()
  UNION ALL
  SELECT 'constraint', table_name, constraint_text, database_name, schema_name FROM system.main.duckdb_constraints()
  UNION ALL
  SELECT 'comment', table_name, comment, database_name, schema_name FROM system.main.duckdb_tables() WHERE comment IS NOT NULL
  UNION ALL
  SELECT 'comment', view_name, comment, database_name, schema_name FROM system.main.duckdb_views() WHERE comment IS NOT NULL
  UNION ALL
  SELECT 'comment', table_name || '.' || column_name, comment, database_name, schema_name FROM system.main.duckdb_columns() WHERE comment IS NOT NULL
) AS everything
WHERE database_name = __database__
ORDER BY kind, name
