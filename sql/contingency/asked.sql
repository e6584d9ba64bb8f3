-- asked: which cells of some columns meet a question's condition, by group.
--   columns   c_0, .. (codes of the columns), g_0, .. (groups), met (share of the cell)
--   reads     __points__: the columns' values side by side, with c_0, .. and share_0, ..
--   holes     __codes__: c_0, ..;  __terms__: the groups named g_0, ..;  __keys__: the same without names;
--             __share__: the product of the shares;  __condition__: over the columns
SELECT __codes__, __terms__, sum(__share__) AS met
FROM __points__
WHERE __condition__
GROUP BY __codes__, __keys__
