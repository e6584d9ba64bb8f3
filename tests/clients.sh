#!/bin/sh
# Count in a release as docs/clients.md says, with psql, SQLAlchemy, pandas and R, in a Postgres server and a DuckDB file, in
# an environment of their own, made here. What this machine lacks is skipped, and named. Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
. tests/environment.sh
extend_environment .venv-clients
fill .venv-clients tests/clients.lock
exec .venv-clients/bin/python -m pytest -n 0 -rs tests/releases/test_clients.py -m "not soak" "$@"
