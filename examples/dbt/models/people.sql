-- The raw table, invented: it stays in the warehouse. In a real project this is a source or a model over sources.
{{ config(materialized="table") }}
select
  i as person_id,
  'patient-' || (i * 7919 % 100003) as name,
  20 + i % 60 as age,
  ['F', 'M'][1 + i % 2] as sex,
  1000 + i % 17 as zip,
  ['flu', 'cold', 'asthma', 'angina', 'gout', 'none'][1 + (i * i + i // 7) % 6] as disease
from range(6000) as t(i)
