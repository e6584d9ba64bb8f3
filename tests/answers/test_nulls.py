"""Every function that tells NULL from values, on a release of every mechanism, beside the truth."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import privsql
from support.commands import write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Quasi-identifiers and sensitive columns have NULL; some diseases and wards are in no list.
PEOPLE = """
SELECT CASE WHEN i % 11 > 0 THEN CAST(20 + i * 7 % 4 * 10 AS INTEGER) END AS age,
  CASE WHEN i % 7 > 0 THEN ['F', 'M'][1 + i % 2] END AS sex,
  CASE WHEN i * 37 % 100 < 40 THEN ['flu', 'cold', 'gout', 'lupus'][1 + i * 37 % 100 % 4]
    WHEN i % 50 < 7 THEN 'zebra' END AS ill,
  CASE WHEN i * 53 % 100 < 60 THEN CAST(1 + i * 53 % 100 % 4 AS INTEGER) WHEN i % 20 < 3 THEN 7 + i % 2 END AS ward
FROM range(6000) t(i)
"""
UNLISTED = {"ill": {"zebra"}, "ward": {7, 8}}
DISEASES, WARDS = ["cold", "flu", "gout", "lupus"], ["1", "2", "3", "4"]
TABLES: dict[str, Any] = {"kind": "randomize", "algorithm": "tables", "epsilon": 6}
ODDS = {"kind": "randomize", "rho1": "0.6", "rho2": "0.95"}
DOMAINS = {"age": ["20", "30", "40", "50"], "sex": ["F", "M"], "ill": DISEASES, "ward": WARDS}
CELLS: dict[str, Any] = {"kind": "contingency", "epsilon": 6, "domains": DOMAINS}
BINS = {**DOMAINS, "ward": {"bins": ["1", "3", "5"]}, "age": {"bins": ["20", "40", "60"]}}
MECHANISMS: dict[str, tuple[str, dict[str, Any]]] = {
    "bucketize": ("ill", {"kind": "bucketize", "threshold": "0.8"}),
    "fakes": ("ward", {"kind": "bucketize", "threshold": "0.8", "fake_values": 1, "uneven_fakes": "state"}),
    "permute": ("ward", {"kind": "permute", "k": 2, "e": 1}),
    "bucketize without NULL": ("ill", {"kind": "bucketize", "threshold": "0.8"}),
    "bucketize numbers": ("ward", {"kind": "bucketize", "threshold": "0.8"}),
    "up": ("ill", ODDS | {"algorithm": "up"}),
    "pp": ("ill", ODDS | {"algorithm": "pp"}),
    "up of numbers": ("ward", ODDS | {"algorithm": "up"}),
    "tables": ("ill", TABLES | {"values": DISEASES}),
    "tables of numbers": ("ward", TABLES | {"values": WARDS}),
    "tables without NULL": ("ill", TABLES | {"values": DISEASES, "null_is_value": False}),
    "tables of numbers without NULL": ("ward", TABLES | {"values": WARDS, "null_is_value": False}),
    "marginals": ("", CELLS),
    "marginals of bins": ("", CELLS | {"domains": BINS}),
    "cells": ("", CELLS | {"algorithm": "diffpart"}),
}
SUPPRESSED = ("bucketize without NULL", "permute")  # whose records with NULL are left out
CONDITIONS = [
    "{x} IS NULL", "{x} IS NOT NULL", "NOT ({x} IS NULL)", "{x} IN ({a}, {b})", "{x} NOT IN ({a}, {b})",
    "NOT ({x} IN ({a}, {b}))", "{x} = {a}", "{x} <> {a}", "NOT ({x} = {a})", "{x} IS DISTINCT FROM {a}",
    "{x} IS NOT DISTINCT FROM {a}", "COALESCE({x}, {a}) = {a}", "COALESCE({x}, {b}) <> {a}", "NULLIF({x}, {a}) IS NULL",
    "NULLIF({x}, {a}) IS NOT NULL", "NULLIF({x}, {a}) = {b}", "CASE WHEN {x} IS NULL THEN {a} ELSE {x} END = {a}",
    "CASE WHEN {x} = {a} THEN 1 WHEN {x} IS NULL THEN 2 ELSE 3 END = 3", "CASE {x} WHEN {a} THEN 1 ELSE 2 END = 2",
    "({x} = {a} OR {x} IS NULL)", "({x} <> {a} OR {x} IS NULL)", "({x} IS NULL AND {y} IS NULL)",
    "({x} IS NULL OR {y} IS NOT NULL)", "{x} > {a}", "NOT ({x} > {a})", "COALESCE({x}, {c}) = {c}", "{x} = {c}",
    "{x} <> {c}", "{x} NOT IN ({a}, {c})", "{x} IN ({a}, {c})", "NOT ({x} IN ({a}, {c}))", "{x} BETWEEN {a} AND {b}",
    "{x} IN ({a}, NULL)", "{x} NOT IN ({a}, NULL)",
]  # fmt: skip
TEXTS = ["{x} LIKE 'z%'", "{x} NOT LIKE '%e%'", "length({x}) = 5", "upper({x}) <> 'FLU'", "NOT ({x} LIKE 'f%')"]
FIGURES = [
    "COUNT({x})", "COUNT({x}) * 1.0 / COUNT(*)", "COUNT(*) - COUNT({x})", "COUNT(*) FILTER (WHERE {x} IS NULL)",
    "SUM(CASE WHEN {x} IS NULL THEN 1 ELSE 0 END)", "COUNT(NULLIF({x}, {a}))", "COUNT_IF({x} IS NULL)",
    "COUNT(COALESCE({x}, {a}))", "AVG(CASE WHEN {x} IS NULL THEN 1 ELSE 0 END)",
    "COUNT(CASE WHEN {x} <> {a} THEN 1 END)",
]  # fmt: skip
KEYS = [
    "{x}",
    "{x} IS NULL",
    "COALESCE({x}, {a})",
    "NULLIF({x}, {a})",
    "CASE WHEN {x} IS NULL THEN 'none' ELSE 'some' END",
]
CONSTANTS = {
    "ill": {"a": "'flu'", "b": "'gout'", "c": "'zebra'", "y": "sex"},
    "ward": {"a": "1", "b": "3", "c": "7", "y": "sex"},
    "sex": {"a": "'F'", "b": "'M'", "c": "'X'", "y": "age"},
    "age": {"a": "20", "b": "40", "c": "25", "y": "sex"},
}


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("people") / "people.parquet", PEOPLE)


def publish(people: Path, folder: Path, name: str) -> Path:
    sensitive, mechanism = MECHANISMS[name]
    columns: dict[str, Any] = {"categories": [*DOMAINS]}
    if sensitive:
        policy = "suppress" if name in SUPPRESSED else "value"
        columns = {"quasi_identifiers": ["age", "sex"], "sensitive": [sensitive], "nulls": {sensitive: policy}}
    privsql.publish(
        {
            "source": {"file": str(people)}, "columns": columns, "mechanism": mechanism, "ledger": {"off": True},
            "release": {"name": "data", "to": str(folder / "people.duckdb")},
        }, seed=1, allow_useless=True,
    )  # fmt: skip
    return folder / "people.duckdb"


def list_questions(name: str) -> Iterator[tuple[str, str]]:
    """The column that each question is about, and the question."""
    sensitive = [MECHANISMS[name][0]] if MECHANISMS[name][0] else ["ill", "ward"]
    for x in (*sensitive, "sex", "age"):
        texts = TEXTS if x in ("ill", "sex") else []
        for condition in (*CONDITIONS, *texts):
            yield x, f"SELECT COUNT(*) FROM data WHERE {condition.format(x=x, **CONSTANTS[x])}"
            yield x, f"SELECT sex, COUNT(*) FROM data WHERE {condition.format(x=x, **CONSTANTS[x])} GROUP BY sex"
        for figure in FIGURES:
            yield x, f"SELECT {figure.format(x=x, **CONSTANTS[x])} FROM data"
            yield x, f"SELECT {figure.format(x=x, **CONSTANTS[x])} FROM data WHERE {CONSTANTS[x]['y']} IS NULL"
        for key in KEYS:
            yield x, f"SELECT {key.format(x=x, **CONSTANTS[x])} AS k, COUNT(*) FROM data GROUP BY 1"
            yield x, f"SELECT {key.format(x=x, **CONSTANTS[x])} AS k, COUNT(*) FROM data WHERE age IS NULL GROUP BY 1"


SLOW, SOAK = pytest.mark.slow, pytest.mark.soak(part="cases")
WALKS = [
    pytest.param("tables", 0, 28),
    pytest.param("marginals", 0, 44),
    *(pytest.param(name, at % 6, 6, marks=SLOW) for at, name in enumerate(MECHANISMS)),  # each question of two or three
    *(pytest.param(name, 0, 1, marks=SOAK) for name in MECHANISMS),
]


@pytest.mark.parametrize(("name", "first", "step"), WALKS)
def test_what_tells_null_from_values_holds_the_truth(
    people: Path, tmp_path: Path, name: str, first: int, step: int
) -> None:
    """Nothing that is called exact or certain is wrong, and no interval at 99.9999 % lies beside the truth."""
    wrong, asked, narrow = [], 0, 0
    with closing(duckdb.connect()) as db, privsql.open(publish(people, tmp_path, name)) as release:
        db.execute(f"CREATE VIEW data AS FROM '{people}'")
        for x, sql in [*list_questions(name)][first::step]:
            try:
                answer = release.query(sql, confidence=0.999999)
            except privsql.UsageError as error:
                assert "in bins" in str(error), (sql, error)
                continue
            truth = {row[:-1]: row[-1] for row in db.execute(sql).fetchall()}
            for *key, _, _, low, high in answer.rows:
                if "other" in key:  # which stands for all that the truth names
                    continue
                true, asked = truth.pop(tuple(key), 0), asked + 1
                if low is None or high is None:
                    assert answer.rests_on == "point", sql
                    continue
                within = low - 1e-6 <= true <= high + 1e-6
                wrong += [] if within else [(sql, key, true, (low, high), answer.rests_on)]
                narrow += high - low < 900
            left = {key for key in truth if not UNLISTED.get(x, set()) & {*key}}
            left -= {(None,)} if name in SUPPRESSED else set()
            # A group of records that were left out has no row, and the answer says how many of them it may lack.
            lacks = answer.rests_on == "certain" and name in SUPPRESSED
            lacks = lacks and sum(truth[key] for key in left) <= max(one.touching for one in answer.figures)
            assert not left or answer.rests_on == "interval" or lacks, (sql, left)
            wrong += [(sql, key, truth[key]) for key in left if truth[key] > max(100, answer.missing or 0)]
    assert not wrong, "\n".join(map(str, wrong))
    assert narrow > asked / 2 or name in SUPPRESSED or "without NULL" in name
