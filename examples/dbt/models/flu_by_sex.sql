-- What a reader makes of the release: estimates by plain SQL, from the release's own view.
-- depends_on: {{ ref('release') }}
select sex, sum(weight) as people_with_flu
from {{ source('released', 'people_weighted') }}
where disease = 'flu'
group by sex
