#!/bin/sh
# Run one of the long parts of the tests, which .ci/run leaves out; --list names them. Parts that need Spark run in the
# environment of tests/engines.sh. Further arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
environment=.venv-test lock=tests/requirements.lock
case "${1:-}" in services | spark) environment=.venv-engines lock=tests/engines.lock ;; esac
python="${PYTHON:-python3}"
[ -x "$environment/bin/pytest" ] || "$python" -m venv "$environment"
pip="$environment/bin/pip --quiet --disable-pip-version-check"
$pip install --require-hashes --requirement "$lock"
$pip install --no-deps --no-build-isolation --editable .
exec "$environment/bin/python" -m tests.soak "$@"
