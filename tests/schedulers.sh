#!/bin/sh
# Run a command of an environment that holds Airflow and Dagster beside privsql, made here (with uv where there is one).
set -eu
root="$(cd "$(dirname "$0")/.." && pwd)"
bin="$root/.venv-schedulers/bin"
[ -x "$bin/dagster" ] || {
    "${PYTHON:-python3}" -m venv "$root/.venv-schedulers"
    if command -v uv >/dev/null; then
        uv pip install --quiet --python "$bin/python" --require-hashes --requirement "$root/tests/schedulers.lock"
    else
        "$bin/pip" install --quiet --disable-pip-version-check --require-hashes --requirement "$root/tests/schedulers.lock"
    fi
    "$bin/pip" install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable "$root"
}
command="$1"
shift
PATH="$bin:$PATH" exec "$bin/$command" "$@"
