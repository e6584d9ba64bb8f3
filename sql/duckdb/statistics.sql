-- statistics: the texts that the footers of Parquet files state beside the values of their columns.
--   columns   name (the path of a column; NULL where a text is no bound of its values), text
--   reads     __chunks__, __entries__: what DuckDB's functions parquet_metadata and parquet_kv_metadata say of the
--             files; so this file is DuckDB's own, outside the portable subset
--   why so    a bound stands twice in a footer, in an old and in a new entry; a key that stands twice has two values
WITH bounds AS (
  SELECT path_in_schema AS name, unnest([stats_min, stats_max, stats_min_value, stats_max_value]) AS text
  FROM __chunks__
  WHERE type = 'BYTE_ARRAY'
)
SELECT name, text
FROM bounds
WHERE text IS NOT NULL
UNION
SELECT NULL, CAST(key_value_metadata AS VARCHAR)
FROM __chunks__
WHERE cardinality(key_value_metadata) > 0
UNION
SELECT NULL, CAST(key AS VARCHAR)
FROM __entries__
GROUP BY file_name, key
HAVING count(*) > 1
