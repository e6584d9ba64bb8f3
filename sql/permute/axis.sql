-- axis: the distinct sensitive values in rising order.
--   columns   value
--   reads     __domain__ (sql/core/domain.sql);  hole __value__: s0
SELECT __value__ AS value
FROM __domain__
ORDER BY code
