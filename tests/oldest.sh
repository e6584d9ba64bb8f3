#!/bin/sh
# Run what depends on pandas and sqlglot with the oldest versions of them that pyproject.toml allows, in an environment of
# its own, made here. Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
. tests/environment.sh
extend_environment .venv-oldest
oldest=.venv-oldest/bin/python
$oldest -m pip --quiet --disable-pip-version-check install --no-deps "pandas==2.2.3" "sqlglot==30.27.0"
exec $oldest -m pytest tests/answers tests/engine tests/source/test_frames.py tests/sql tests/test_python_page.py "$@"
