-- blocks: the blocks of a database file, to see whether some are free and how long the file must be.
--   columns   block (bytes of one), total (how many there are), free (how many hold nothing that is in use)
--   reads     what DuckDB says of attached databases; so this file is DuckDB's own, outside the portable subset
--   holes     __database__: the database's name as an expression
SELECT block_size AS block, total_blocks AS total, free_blocks AS free
FROM pragma_database_size()
WHERE database_name = __database__
