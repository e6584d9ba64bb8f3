#!/bin/sh
# Run a command of an environment that holds Airflow and Dagster beside privsql, made here (with uv where there is one).
# Ends with 69 where their packages can't be had.
set -eu
root="$(cd "$(dirname "$0")/.." && pwd)"
bin="$root/.venv-schedulers/bin"
[ -x "$bin/dagster" ] || {
    "${PYTHON:-python3}" -m venv "$root/.venv-schedulers"
    lock="$root/tests/schedulers.lock"
    if command -v uv >/dev/null; then
        uv pip install --quiet --python "$bin/python" --require-hashes --requirement "$lock" || exit 69
    else
        "$bin/pip" install --quiet --disable-pip-version-check --require-hashes --requirement "$lock" || exit 69
    fi
    "$bin/pip" install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable "$root"
}
command="$1"
shift
PATH="$bin:$PATH" exec "$bin/$command" "$@"
