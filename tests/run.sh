#!/bin/sh
# Run the tests in an environment of their own, made here. Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"
[ -x .venv-test/bin/pytest ] || "$python" -m venv .venv-test
.venv-test/bin/pip install --quiet --disable-pip-version-check --editable '.[test]'
exec .venv-test/bin/pytest "$@"
