#!/bin/sh
# Run what needs Spark (with Java 17) or a Postgres server, in an environment of its own, made here. What this machine
# lacks is skipped. Spark makes a part of the relations and releases; all of them: tests/soak.sh spark. Arguments go to
# pytest.
set -eu
cd "$(dirname "$0")/.."
. tests/environment.sh
extend_environment .venv-engines
fill .venv-engines tests/engines.lock
python=.venv-engines/bin/python
for version in 1.1.3 1.4.1; do # read the same files
    [ -d ".duckdb/$version" ] ||
        $python -m pip --quiet --disable-pip-version-check install --no-deps --target ".duckdb/$version" "duckdb==$version"
done
run_beside_spark() {
    failed=0
    $python -m pytest tests/sql --engine postgres "$@" || failed=$?
    $python -m pytest tests/sql/core --engine spark -n 1 "$@" || failed=$?
    $python -m pytest -n 0 -m "not soak" tests/engine/test_postgres.py tests/releases/test_readers.py tests/source/test_lakes.py tests/verbs/test_postgres_source.py tests/releases/test_server_releases.py "$@" || failed=$?
    return "$failed"
}
run_beside_spark "$@" & # on the second core
beside=$!
failed=0
$python -m pytest -n 0 -m "not soak" tests/engine/test_spark*.py "$@" || failed=$?
wait "$beside"
exit "$failed"
