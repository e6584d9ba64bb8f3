#!/bin/sh
# Run what needs Spark (with Java 17) or a Postgres server, in an environment of its own, made here. What this machine
# lacks is skipped. Spark makes a part of the relations; all of them: tests/soak.sh spark. Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"
[ -x .venv-engines/bin/pytest ] || "$python" -m venv .venv-engines
pip=".venv-engines/bin/pip --quiet --disable-pip-version-check"
$pip install --require-hashes --requirement tests/engines.lock
$pip install --no-deps --no-build-isolation --editable .
for version in 1.1.3 1.4.1; do # read the same files
  [ -d ".duckdb/$version" ] || $pip install --no-deps --target ".duckdb/$version" "duckdb==$version"
done
test=.venv-engines/bin/pytest
$test tests/sql --engine postgres "$@"
$test tests/sql/core tests/sql/verify --engine spark -n 1 "$@" & # a Java of its own, on the second core
beside=$!
failed=0
$test -n 0 -m "not soak" tests/engine/test_spark*.py tests/engine/test_postgres.py tests/releases/test_readers.py tests/verbs/test_postgres_source.py "$@" || failed=$?
wait "$beside"
exit "$failed"
