-- Functions of Postgres's catalogs, each under its name, of one or two arguments: what they are of releases.
--   columns   one for each function
--   reads     nothing;  holes __first__, __second__: the arguments
SELECT
  'privsql' AS pg_get_userbyid,
  'UTF8' AS pg_encoding_to_char,
  __first__ AS pg_size_pretty,
  0 AS pg_table_size,
  0 AS pg_relation_size,
  0 AS pg_total_relation_size,
  0 AS pg_my_temp_schema,
  1 AS pg_backend_pid,
  FALSE AS pg_is_in_recovery,
  FALSE AS pg_is_other_temp_schema,
  TRUE AS pg_type_is_visible,
  TRUE AS pg_function_is_visible,
  TRUE AS pg_collation_is_visible,
  TRUE AS pg_opclass_is_visible,
  TRUE AS pg_advisory_unlock_all,
  FALSE AS pg_relation_is_publishable,
  FALSE AS pg_relation_is_updatable,
  TRUE AS has_table_privilege,
  TRUE AS has_schema_privilege,
  TRUE AS has_column_privilege,
  TRUE AS has_any_column_privilege,
  TRUE AS has_database_privilege,
  FALSE AS has_sequence_privilege,
  TRUE AS pg_has_role,
  CAST(NULL AS VARCHAR) AS pg_get_expr,
  CAST(NULL AS VARCHAR) AS pg_get_viewdef,
  CAST(NULL AS VARCHAR) AS pg_get_indexdef,
  CAST(NULL AS VARCHAR) AS pg_get_constraintdef,
  CAST(NULL AS VARCHAR) AS pg_get_triggerdef,
  CAST(NULL AS VARCHAR) AS pg_get_ruledef,
  CAST(NULL AS VARCHAR) AS pg_get_partkeydef,
  CAST(NULL AS VARCHAR) AS pg_get_functiondef,
  CAST(NULL AS VARCHAR) AS pg_get_function_result,
  CAST(NULL AS VARCHAR) AS pg_get_function_arguments,
  CAST(NULL AS VARCHAR) AS pg_get_function_identity_arguments,
  CAST(NULL AS VARCHAR) AS pg_get_statisticsobjdef_columns,
  CAST(NULL AS VARCHAR) AS pg_get_serial_sequence,
  CAST(NULL AS VARCHAR) AS pg_tablespace_location,
  CAST(NULL AS VARCHAR) AS pg_export_snapshot,
  CAST(NULL AS VARCHAR) AS shobj_description,
  CAST(NULL AS VARCHAR) AS inet_server_addr,
  CAST(NULL AS VARCHAR) AS json_build_object,
  {'x': __first__[1], 'n': 1} AS _pg_expandarray,
  len(__first__) AS array_upper,
  1 AS array_lower,
  '"' || replace(__first__, '"', '""') || '"' AS quote_ident,
  (
    SELECT held.v <> 13000 FROM (SELECT oid AS k, relnamespace AS v FROM pg_class) AS held WHERE held.k = TRY_CAST(__first__ AS BIGINT)
  ) AS pg_table_is_visible,
  (
    SELECT held.v FROM (SELECT objoid AS k, objsubid AS n, description AS v FROM pg_description) AS held
    WHERE held.k = TRY_CAST(__first__ AS BIGINT) AND held.n = __second__
  ) AS col_description,
  (
    SELECT held.v FROM (SELECT objoid AS k, objsubid AS n, description AS v FROM pg_description) AS held
    WHERE held.k = TRY_CAST(__first__ AS BIGINT) AND held.n = 0
  ) AS obj_description,
  (SELECT held.v FROM (SELECT oid AS k, privsql_label AS v FROM pg_type) AS held WHERE held.k = TRY_CAST(__first__ AS BIGINT)) AS format_type,
  (SELECT held.v FROM (SELECT oid AS k, privsql_label AS v FROM pg_type) AS held WHERE held.k = TRY_CAST(__first__ AS BIGINT)) AS regtype,
  (SELECT held.v FROM (SELECT oid AS k, relname AS v FROM pg_class) AS held WHERE held.k = TRY_CAST(__first__ AS BIGINT)) AS regclass,
  (SELECT held.v FROM (SELECT oid AS k, nspname AS v FROM pg_namespace) AS held WHERE held.k = TRY_CAST(__first__ AS BIGINT)) AS regnamespace,
  (
    SELECT held.v FROM (SELECT typname AS k, privsql_label AS n, oid AS v FROM pg_type) AS held
    WHERE __first__ IN (held.k, held.n)
  ) AS to_regtype,
  (
    SELECT held.v FROM (SELECT relname AS k, oid AS v FROM pg_class) AS held
    WHERE held.k = string_split(replace(__first__, '"', ''), '.')[-1]
  ) AS to_regclass
