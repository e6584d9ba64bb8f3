-- Fails with the name of each check that does not hold, of the release alone and against its source.
-- depends_on: {{ ref('release') }}
select unnest(privsql_verify('released', 'release.toml')) as failed
