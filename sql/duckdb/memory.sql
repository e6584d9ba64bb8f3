-- memory: what DuckDB may take in this session, as it shows it ("1.8 GiB").
--   columns   memory
--   reads     nothing
--   why       settings are DuckDB's own
SELECT current_setting('memory_limit') AS memory
