-- parsed: the tree that DuckDB makes of a SELECT, as JSON; its field "error" is true for any other text.
--   columns   tree
--   reads     nothing;  hole __sql__: the text
--   why       DuckDB's own parser says what a text of its dialect means
SELECT json_serialize_sql(__sql__) AS tree
