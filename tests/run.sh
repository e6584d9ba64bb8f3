#!/bin/sh
# Run the tests in an environment of their own, made here. Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
. tests/environment.sh
make_environment
exec .venv-test/bin/python -m pytest "$@"
