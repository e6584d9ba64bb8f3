-- written: the text of a SELECT whose tree was changed.
--   columns   sql
--   reads     nothing;  hole __tree__: the tree as JSON
--   why       DuckDB's own parser says what a text of its dialect means
SELECT json_deserialize_sql(CAST(__tree__ AS JSON)) AS sql
