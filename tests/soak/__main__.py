"""Runs one part: ``sh tests/soak.sh PART``, or ``python -m tests.soak PART`` in the test environment.

A test belongs to a part by its mark ``soak(part="..")``. Whoever changes what a part guards runs it. Each takes at most
20 minutes on two cores, but for ``spark``, which takes longer, and ``papers``, which takes hours and goes on where it
was stopped.
"""

from __future__ import annotations

import argparse

import pytest

from . import changes

PARTS = {  # what each guards
    "audits": "epsilon: membership attacks on 20,000 runs of every differentially private program",
    "cases": "all cases of the tests of which other runs try a few",
    "changes": "forty changes of core formulas, each of which default or slow tests notice (about an hour)",
    "coverage": "intervals hold the truth as often as they say, and draws have the chances that they should",
    "damage": "verify and query find every kind of damage to a release, or stay whole",
    "experiments": "every experiment of the papers runs on generated data",
    "fuzz": "30,000 random queries are answered as DuckDB does, 1,200 hostile ones show nothing",
    "kills": "publications that are killed, or run at once, leave the old release or a whole new one",
    "long": "whole ways through several verbs, mechanisms and formats, each of some seconds",
    "mutations": "verify finds 500 random changes, and a change of every leaf of a manifest",
    "outputs": "epsilon: every output of small programs, and 20,000 runs against exact chances",
    "papers": "every experiment at its paper's size: hours, goes on from build/experiments (real tables: PRIVSQL_DATA)",
    "properties": "all examples of the properties of which other runs try a part",
    "services": "a Spark Connect server, a Postgres server that fails, Airflow, Dagster, dbt in DuckDB and Postgres",
    "spark": "every relation of tests/sql, and releases of every algorithm, are made by Spark as by DuckDB",
}
SHARED = [  # where the properties are: tests with examples of which others try a part
    "tests/test_exact.py",
    "tests/adversarial/test_one_record.py",
    "tests/answers/test_query.py",
    "tests/answers/sql/test_countquery.py",
    *(f"tests/mechanisms/bucketize/test_{name}.py" for name in ("search", "groups")),
]
SPARK = [f"tests/engine/test_spark_{name}.py" for name in ("asked", "catalog", "cluster", "release")]
SELECTED = {  # parts that are no mark's
    "properties": ["-m", "soak(part='properties') or not soak", *SHARED],
    "spark": ["-m", "soak(part='spark') or not (soak or slow)", "tests/sql", *SPARK, "--engine", "spark"],
}


def main() -> int:
    """Run the part that the command line names, and return pytest's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Run a long part of the tests.")
    parser.add_argument("--list", action="store_true", help="list the parts")
    parser.add_argument("part", nargs="?", choices=PARTS)
    arguments, rest = parser.parse_known_args()
    if arguments.list or arguments.part is None:
        print("\n".join(f"{name:<13}{guards}" for name, guards in PARTS.items()))
        return 0 if arguments.list else 2
    part = arguments.part
    if part == "changes":
        return changes.main()
    chosen = SELECTED.get(part, ["-m", f"soak(part='{part}')"])
    return int(pytest.main([*chosen, *rest]))


if __name__ == "__main__":
    raise SystemExit(main())
