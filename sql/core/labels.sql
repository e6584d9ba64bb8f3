-- labels: the items as text, in the order of the universe.
--   columns   the labels
--   reads     __domain__(code, item);  hole __labels__: the item as text
SELECT __labels__
FROM __domain__
ORDER BY code
