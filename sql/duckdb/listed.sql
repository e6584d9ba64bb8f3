-- listed: the tables and views of a database.
--   columns   kind, schema_name, name, text (its definition)
--   reads     DuckDB's catalog; so this file is DuckDB's own, outside the portable subset
--   holes     __database__: the database's name as an expression
SELECT kind, schema_name, name, text
FROM (
  SELECT 'table' AS kind, schema_name, table_name AS name, sql AS text, database_name FROM system.main.duckdb_tables()
  UNION ALL
  SELECT 'view', schema_name, view_name, sql, database_name FROM system.main.duckdb_views()
) AS everything
WHERE database_name = __database__
ORDER BY schema_name, name
