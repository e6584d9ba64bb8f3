-- st: the published sensitive table, from its rows in their order.
--   columns   bid, the sensitive columns, count
--   reads     __listed__(bid, s0.., records): a stream
--   holes     __sa__: s0.. under their own names and types;  __bid__, __count__: names
--   why       DuckDB keeps the order of a stream that it only projects; sql/core/st.sql sorts, whatever the engine
SELECT l.bid AS __bid__, __sa__, l.records AS __count__
FROM __listed__ AS l
