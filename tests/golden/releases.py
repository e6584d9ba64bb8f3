"""Small releases of every mechanism and algorithm, made through the public names of privsql alone."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

import privsql

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

STORED = Path(__file__).parent
MANIFEST = "privsql_manifest"
CHANGING = ("privsql", "duckdb")  # versions
CHANGING_FACTS = ("opendp", "channel", "mean_belief")  # versions, and floats of linear algebra
DIGITS = 9

PEOPLE = """
SELECT CAST(20 + i * 7 % 30 AS INTEGER) AS age, CASE WHEN i % 3 = 0 THEN 'F' ELSE 'M' END AS sex,
  CAST(i * 11 % 5 AS INTEGER) AS zip, CAST(1000 + i * i % 83 * 50 AS INTEGER) AS pay,
  'd' || CASE WHEN i % 42 < 12 THEN 0 WHEN i % 42 < 20 THEN 1 WHEN i % 42 < 26 THEN 2 WHEN i % 42 < 31 THEN 3
    WHEN i % 42 < 35 THEN 4 WHEN i % 42 < 38 THEN 5 ELSE i % 42 - 32 END AS disease,
  's' || (i * i + i // 7) % 4 AS stage, i AS id
FROM range({n}) t(i)
"""
BASKETS = """
SELECT i AS id, list_filter(['ale', 'bread', 'cheese', 'dates', 'eggs'], lambda g, k: (i + k) % (k + 1) = 0) AS goods
FROM range(300) t(i)
"""
DOMAINS = {"sex": ["F", "M"], "zip": [0, 1, 2, 3, 4], "stage": ["s0", "s1", "s2", "s3"]}
TABLE = {"quasi_identifiers": ["age", "sex", "zip"], "sensitive": "disease"}
PAY = {"quasi_identifiers": ["age", "sex"], "sensitive": "pay"}
CELLS = {"categories": ["sex", "zip", "stage"]}
GOODS = {"kind": "setvalued", "universe": ["ale", "bread", "cheese", "dates", "eggs"]}
COUNTS = {"kind": "contingency", "epsilon": 5, "domains": DOMAINS}
HALVES = {"disease": "1/2", "stage": "1/2"}
PURE = {"kind": "randomize", "rho1": "1/3", "rho2": "2/3"}


@dataclass(frozen=True)
class Recipe:
    """A release: the columns of its source, its mechanism, and what else its specification says."""

    columns: dict[str, Any]
    mechanism: dict[str, Any]
    records: int = 168
    release: dict[str, Any] | None = None


def _bucketize(**mechanism: Any) -> Recipe:
    return Recipe(TABLE, {"kind": "bucketize", "threshold": "0.5", **mechanism})


RECIPES = {
    "anatomy": _bucketize(algorithm="anatomy", threshold="1/3"),
    "two-size": _bucketize(algorithm="two-size", threshold="2*f + 0.05"),
    "multi-size": _bucketize(algorithm="multi-size", threshold="2*f + 0.05"),
    "optimal": _bucketize(algorithm="optimal", threshold="2*f + 0.05"),
    "informative": _bucketize(algorithm="informative", threshold="2*f + 0.05"),
    "fakes": _bucketize(algorithm="two-size", threshold="1/3", fake_values=1, uneven_fakes="state"),
    "setting": _bucketize(threshold="2*f + 0.05", setting="12x12, 1x24"),
    "groups": _bucketize(algorithm="two-size", groups={"rare": {"values": ["d4", "d5"], "threshold": "1/2"}}),
    "components": Recipe(
        {"quasi_identifiers": ["age", "sex"], "sensitive": ["disease", "stage"]},
        {"kind": "bucketize", "algorithm": "two-size", "threshold": "1/3", "components": HALVES},
    ),
    "one-size": Recipe(  # in portable order
        TABLE, {"kind": "bucketize", "algorithm": "one-size", "threshold": "1/2"}, release={"order": "portable"}
    ),
    "up": Recipe(TABLE, {**PURE, "algorithm": "up"}),
    "pp": Recipe(TABLE, {**PURE, "algorithm": "pp"}, 252),
    "pp-paper": Recipe(TABLE, {**PURE, "algorithm": "pp-paper"}, 252),
    "declared": Recipe(TABLE, {**PURE, "algorithm": "up", "gamma_from": "rho1"}),
    "permute": Recipe(PAY, {"kind": "permute", "k": 3, "e": 100}, 120),
    "nested": Recipe(PAY, {"kind": "permute", "algorithm": "nested", "k": 3, "e": 100}, 120),
    "cells": Recipe(PAY, {"kind": "permute", "algorithm": "cells", "k": 3, "e": 100}, 120),
    "diffpart": Recipe({"items": "goods"}, {**GOODS, "algorithm": "diffpart", "fan_out": 4, "epsilon": 5}),
    "basic": Recipe({"items": "goods"}, {**GOODS, "algorithm": "basic", "epsilon": 5}),
    "views": Recipe({"items": "goods"}, {**GOODS, "algorithm": "views", "epsilon": 5}),
    "tree": Recipe(CELLS, {**COUNTS, "algorithm": "diffpart"}, 300),
    "marginals": Recipe(CELLS, {**COUNTS, "algorithm": "marginals"}, 300),
}  # fmt: skip
GROWING = ("growing-1", "growing-2")
ALL = (*RECIPES, *GROWING)
FEW = ("optimal", "pp", "nested", "diffpart", "marginals")  # one of every mechanism


def publish_recipes(folder: Path, names: Collection[str]) -> dict[str, Path]:
    """Publish releases of these names into a folder; return their paths by name."""
    write_source(folder / "baskets.parquet", BASKETS)
    made = {}
    for name, recipe in ((name, recipe) for name, recipe in RECIPES.items() if name in names):
        source = folder / "baskets.parquet"
        if "items" not in recipe.columns:
            source = write_source(folder / f"people{recipe.records}.parquet", PEOPLE.format(n=recipe.records))
        release = {"name": "t", "to": folder / f"{name}.duckdb", **(recipe.release or {})}
        spec = {"source": {"file": source}, "columns": recipe.columns, "mechanism": recipe.mechanism}
        privsql.publish({**spec, "release": release, "ledger": {"off": True}}, seed=7, threads=1)
        made[name] = folder / f"{name}.duckdb"
    return made | (_publish_growing(folder) if set(GROWING) <= set(names) else {})


def _publish_growing(folder: Path) -> dict[str, Path]:
    """Publish two releases of a table that grows, which need a ledger."""
    made = {}
    for number, (name, records) in enumerate(zip(GROWING, (60, 90), strict=True)):
        source = write_source(folder / f"{name}.parquet", PEOPLE.format(n=records))
        spec = {
            "source": {"file": source, "id": "id", "population": "growing"},
            "columns": PAY,
            "mechanism": {"kind": "permute", "algorithm": "reapply-last", "k": 3, "e": 100},
            "release": {"name": "t", "to": folder / f"{name}.duckdb"},
            "ledger": {"database": folder / "ledger.duckdb"},
        }
        privsql.publish(spec, seed=number, threads=1)
        made[name] = folder / f"{name}.duckdb"
    return made


def write_source(path: Path, sql: str) -> Path:
    """Write the rows of a query to a Parquet file, once."""
    if path.exists():
        return path
    with duckdb.connect() as db:
        db.execute(f"COPY ({sql}) TO '{path}' (FORMAT parquet)")
    return path


def read_contents(releases: dict[str, Path]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the tables of every release hold, as digests, and what its manifest states, both by its name."""
    digests, manifests = {}, {}
    with duckdb.connect(config={"threads": 1}) as db:
        for name, release in releases.items():
            db.execute(f"ATTACH '{release}' AS golden (READ_ONLY)")
            db.execute("USE golden")
            digests[name] = _digest_tables(db)
            manifests[name] = _read_manifest(db)
            db.execute("USE memory")
            db.execute("DETACH golden")
    return digests, manifests


def _digest_tables(db: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """The SHA-256 of the sorted rows of every table of the database in use, with its columns and types."""
    found = {}
    names = db.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'golden' ORDER BY 1").fetchall()
    for (name,) in names:
        if name == MANIFEST:
            continue
        table = db.execute(f'FROM "{name}"')
        head = [(column[0], str(column[1])) for column in table.description]
        rows = sorted(repr(tuple(_plain(value) for value in row)) for row in table.fetchall())
        found[name] = hashlib.sha256(json.dumps([head, rows]).encode()).hexdigest()
    return found


def _read_manifest(db: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """The manifest of the database in use as plain data, without what changes with libraries."""
    whole = {name: json.loads(value) for name, value in db.execute(f"FROM {MANIFEST}").fetchall()}
    facts = {name: value for name, value in whole["facts"].items() if name not in CHANGING_FACTS}
    left_out = (*CHANGING, *CHANGING_FACTS)
    return {name: _plain(value) for name, value in (whole | {"facts": facts}).items() if name not in left_out}


def answer_all(made: dict[str, Path], asked: Sequence[tuple[str, str, str]]) -> dict[str, Any]:
    """Answer queries, each (release, estimator, SQL); return columns and rows of each."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(one[0] for one in asked):
        with privsql.open(made[name]) as release:
            for _, estimator, sql in (one for one in asked if one[0] == name):
                answer = release.sql(sql, estimator=estimator)
                rows = [_plain(row) for row in answer.astype(object).itertuples(index=False, name=None)]
                found[f"{name} | {estimator} | {sql}"] = {
                    "columns": list(answer.columns),
                    "rows": sorted(rows, key=repr),
                }
    return found


def _plain(value: Any) -> Any:
    """A value as JSON holds it, numbers that are not whole with so many digits."""
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Decimal | Fraction | float) or hasattr(value, "dtype"):
        number = float(value)
        return None if math.isnan(number) else float(f"{number:.{DIGITS}g}") + 0.0
    return value if isinstance(value, int) else str(value)


def compare(name: str, found: Any, releases: Collection[str]) -> list[str]:
    """Return what differs from a stored file about some releases, one line each."""
    path = STORED / f"{name}.json"
    whole = json.loads(path.read_text("utf-8")) if path.exists() else {}
    stored = {key: value for key, value in whole.items() if key.split(" | ")[0] in releases}
    return [
        f"{name}: {key}: {json.dumps(stored.get(key))} is now {json.dumps(found.get(key))}"
        for key in sorted({*stored, *found})
        if stored.get(key) != found.get(key)
    ]


def store(name: str, found: Any) -> None:
    """Write what is expected from now on."""
    text = json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False)
    (STORED / f"{name}.json").write_text(text + "\n", "utf-8")
