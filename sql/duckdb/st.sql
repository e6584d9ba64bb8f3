-- st: the published sensitive table, from its rows in their order.
--   columns   bid, the sensitive columns, count
--   reads     __listed__(bid, s0.., records): a stream
--   holes     __sa__: s0.. under their own names and types
--   why       DuckDB keeps the order of a stream that it only projects; sql/core/st.sql sorts, whatever the engine
SELECT l.bid, __sa__, l.records AS "count"
FROM __listed__ AS l
