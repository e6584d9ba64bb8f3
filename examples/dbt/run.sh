#!/bin/sh
# Build the project, or a copy of it in folder PROJECT, in an environment of its own, made here (with uv where it is
# installed). Arguments go to dbt, in place of `build`.
set -eu
cd "$(dirname "$0")"
root="$(cd ../.. && pwd)"
python="${PYTHON:-python3}"
[ -x .venv/bin/dbt ] || {
  "$python" -m venv .venv
  if command -v uv > /dev/null; then
    uv pip install --quiet --python .venv/bin/python --require-hashes --requirement requirements.lock
  else
    .venv/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
  fi
}
.venv/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation "$root"
bin="$PWD/.venv/bin"
cd "${PROJECT:-.}"
DBT_PROFILES_DIR=. "$bin/dbt" "${@:-build}"
