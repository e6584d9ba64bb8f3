#!/bin/sh
# From nothing but Python >= 3.11 to a verified release and a first answer.
set -eu
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"
[ -x .venv/bin/privsql ] || {
  "$python" -m venv .venv
  .venv/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
  .venv/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation .
}
PATH="$PWD/.venv/bin:$PATH"
cd examples
PRIVSQL_LEDGER="$(mktemp -d)"  # an example is no release: what it writes down is thrown away
export PRIVSQL_LEDGER
trap 'rm -rf "$PRIVSQL_LEDGER"' EXIT
set -x
python make_census.py
privsql publish census.toml --replace --nobody-has-it
privsql verify census_release.duckdb --source census.toml
privsql query census_release.duckdb \
  "SELECT sex, COUNT(*) FROM census WHERE age BETWEEN 30 AND 40 AND occupation = 'care clerk' GROUP BY sex"
