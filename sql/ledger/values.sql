-- values: the sensitive value of every record that some releases of a ledger hold.
--   columns   id, value (of the column's own type)
--   reads     __subjects__(number, id, value)
--   holes     __among__: predicate for s.number;  __value__: value, a text, as an expression of its own type
SELECT id, __value__ AS value
FROM (SELECT s.id, min(s.value) AS value FROM __subjects__ AS s WHERE __among__ GROUP BY s.id) AS one
