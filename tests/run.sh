#!/bin/sh
# Run the tests in an environment of their own, made here. Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"
[ -x .venv-test/bin/pytest ] || "$python" -m venv .venv-test
pip=".venv-test/bin/pip --quiet --disable-pip-version-check"
$pip install --require-hashes --requirement tests/requirements.lock
$pip install --no-deps --no-build-isolation --editable .
exec .venv-test/bin/pytest "$@"
