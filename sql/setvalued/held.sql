-- held: the rows that meet a condition.
--   columns   row
--   reads     __rows__(row, and the columns that the condition is about)
--   holes     __condition__
SELECT row
FROM __rows__
WHERE __condition__
