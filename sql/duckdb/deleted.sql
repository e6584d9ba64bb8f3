-- deleted: how many rows of a stored table are deleted and still lie in its file.
--   columns   name, rows
--   reads     DuckDB's list of a table's segments; so this file is DuckDB's own, outside the portable subset
--   why so    a deleted row is only marked until all rows around it are; the first column's segments count it
--   holes     __table__: the table;  __called__: its name as a text, __name__: as it is reported
SELECT __name__ AS name, coalesce(sum(stored.count), 0) - (SELECT count(*) FROM __table__) AS rows
FROM pragma_storage_info(__called__) AS stored
WHERE stored.column_path = '[0]' AND stored.segment_type <> 'VALIDITY'
