#!/bin/sh
# Check formatting, lint and types, and print how many lines the package has, in the environment of the tests, made here.
set -eu
cd "$(dirname "$0")/.."
. tests/environment.sh
make_environment
python=.venv-test/bin/python
$python -m ruff check .
$python -m ruff format --check .
$python -m mypy
$python -m tests.count_lines
