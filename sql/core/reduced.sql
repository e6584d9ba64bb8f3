-- reduced: of every person one record, whatever order the records lie in.
--   columns   those of the source
--   reads     __source__;  holes __columns__: its columns;  __person__: the text that names a person;
--             __left_out__: 1 for records that the NULL policy leaves out, 0 for others;  __hash__: of person and record;
--             __ties__: what is published of a record;  __place__: a name that no column has;  __first__: that column = 1
--   why       the smallest hash of person and record: no value is preferred, and nobody who lacks the names knows more
SELECT __columns__
FROM (
  SELECT __columns__, row_number() OVER (PARTITION BY __person__ ORDER BY __left_out__, __hash__, __ties__ NULLS LAST) AS __place__
  FROM __source__
) AS ranked
WHERE __first__
