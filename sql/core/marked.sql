-- marked: for each text column whether any record has a text in it that stands for a missing value.
--   columns   as many as are filled in, 1 or 0
--   reads     __source__;  hole __marked__: such a maximum by column
SELECT __marked__ FROM __source__
