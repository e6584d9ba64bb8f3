-- databases: the databases of an instance.
--   columns   name, path (empty in memory), kind (duckdb, or another one that an extension has attached), schema (that
--             is current there; NULL in all databases but the current one)
--   reads     DuckDB's catalog; so this file is DuckDB's own, outside the portable subset
SELECT database_name AS name, path, type AS kind, CASE WHEN database_name = current_database() THEN current_schema() END AS schema
FROM system.main.duckdb_databases()
WHERE NOT internal
ORDER BY name
