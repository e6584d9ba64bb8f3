-- Fails where a check of the release, alone or against its source, does not hold.
select * from {{ ref('release') }} where holds is not true
