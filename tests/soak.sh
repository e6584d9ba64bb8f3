#!/bin/sh
# Run one of the long parts of the tests, which .ci/run leaves out; --list names them. Parts that need Spark run in the
# environment of tests/engines.sh. Further arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
. tests/environment.sh
case "${1:-}" in
services | spark)
    environment=.venv-engines
    extend_environment $environment
    fill $environment tests/engines.lock
    ;;
*)
    environment=.venv-test
    make_environment
    ;;
esac
exec $environment/bin/python -m tests.soak "$@"
