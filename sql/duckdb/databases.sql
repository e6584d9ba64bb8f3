-- databases: the databases of an instance.
--   columns   name, path (empty in memory), kind (duckdb, or another one that an extension has attached), is_current
--   reads     DuckDB's catalog; so this file is DuckDB's own, outside the portable subset
SELECT database_name AS name, path, type AS kind, database_name = current_database() AS is_current
FROM system.main.duckdb_databases()
WHERE NOT internal
ORDER BY name
