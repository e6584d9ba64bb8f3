#!/bin/sh
# Run the clients of `privsql serve --postgres` (psql, psycopg, SQLAlchemy, ADBC, asyncpg, DuckDB 1.5, and the drivers for
# Java and ODBC of Debian's libpostgresql-jdbc-java and odbc-postgresql), in an environment of their own, made here. What
# this machine lacks is skipped. --regenerate stores what they send, which every run replays. Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"
[ -x .venv-clients/bin/python ] || "$python" -m venv .venv-clients
.venv-clients/bin/pip --quiet --disable-pip-version-check install --require-hashes --requirement tests/clients.lock
PRIVSQL_CLIENTS="$PWD/.venv-clients/bin/python" exec .venv-test/bin/python -m pytest tests/serving/test_clients.py -n 0 -m "not soak" "$@"
