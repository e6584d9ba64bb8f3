-- lettered: names that hold anything else beside their digits than the others do.
--   columns   names
--   reads     __traces__(id, person);  holes __letters__: t.id or t.person without its digits;  __common__: those of the others
SELECT count(*) AS names
FROM __traces__ AS t
WHERE __letters__ <> __common__
