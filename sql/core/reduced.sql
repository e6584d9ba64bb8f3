-- reduced: of every person one record, or the first few, whatever order the records lie in.
--   columns   those of the source
--   reads     __source__;  holes __columns__: its columns;  __person__: the text that names a person;
--             __record__: the text of what is published of a record;  __id__: what names a record, or the person where
--             nothing does;  __left_out__: 1 for records that the NULL policy leaves out, 0 for others;  __earlier__: 0
--             for a record that an earlier release holds, more for others;  __hash__: keyed, of person, record and copy;
--             __copy__, __place__: names that no column has;  __first__: the condition on column __place__: = 1, or <= k
--   why       equal records of a person are numbered, so that each of them has a hash of its own; the smallest keyed hash
--             prefers no value, and who lacks the key can't tell which record it takes
SELECT __columns__
FROM (
  SELECT
    __columns__,
    row_number() OVER (
      PARTITION BY __person__ ORDER BY __left_out__, __earlier__, __hash__, __record__
    ) AS __place__
  FROM (
    SELECT __columns__, row_number() OVER (PARTITION BY __person__, __record__ ORDER BY __id__) AS __copy__
    FROM __source__
  ) AS copies
) AS ranked
WHERE __first__
