-- kinds_of_rows: a number of 64 bits for each record, the same for records that are the same.
--   columns   kind
--   reads     __rows__ (one row for each record); so this file is DuckDB's own, outside the portable subset
--   why so    a column of numbers is sorted six times as fast as rows of columns are grouped
--   holes     __hash__: the engine's hash of the columns that are compared;  __last__: the highest number that is read
SELECT kind FROM (SELECT __hash__ AS kind FROM __rows__) AS numbered WHERE kind <= __last__
