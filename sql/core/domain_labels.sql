-- domain_labels: the domain as Python reads it.
--   columns   text of each sensitive column, records; one row per value in canonical order
--   reads     __domain__ (sql/core/domain.sql);  hole __labels__: s0.. as text
SELECT __labels__, records
FROM __domain__
ORDER BY code
