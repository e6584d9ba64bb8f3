-- Fails where the release answers a query of counts.test otherwise than its readers expect.
-- depends_on: {{ ref('release') }}
select unnest(privsql_test('released', 'counts.test')) as failed
