-- options: which of the published rows could be each person's, where one record of each person is published.
--   columns   person (number), row (of __rows__)
--   reads     __people__ (sql/core/people.sql), all records; __rows__(row, and the columns);  hole __same_row__: equality of p and r
SELECT DISTINCT dense_rank() OVER (ORDER BY p.person) - 1 AS person, r.row
FROM __people__ AS p
LEFT JOIN __rows__ AS r ON __same_row__
