#!/bin/sh
# Run what depends on pandas and sqlglot with the oldest versions of them that pyproject.toml allows, in an environment of
# its own, made here. Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"
[ -x .venv-oldest/bin/pytest ] || "$python" -m venv .venv-oldest
pip=".venv-oldest/bin/pip --quiet --disable-pip-version-check"
$pip install --require-hashes --requirement tests/requirements.lock
$pip install --no-deps --no-build-isolation --editable .
$pip install --no-deps "pandas==2.2.3" "sqlglot==30.27.0"
exec .venv-oldest/bin/pytest tests/answers tests/engine tests/source/test_frames.py tests/sql tests/test_python_page.py "$@"
