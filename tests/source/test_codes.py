"""Codes are not values: a key lays out tables with equal codes, but other values or other pairs of them, anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import privsql
from support.commands import write
from support.loops import rest_slow

if TYPE_CHECKING:
    from pathlib import Path

ROWS = "SELECT i::INTEGER AS age, ((i + {0}) * 7 % 23)::INTEGER AS zip, (i % 6)::INTEGER AS s FROM range(138) t(i)"
TABLES = {
    "same": f"SELECT * FROM ({ROWS.format(0)}) ORDER BY hash(age)",
    "recoded": f"SELECT age + 1 AS age, zip, s FROM ({ROWS.format(0)})",
    "shuffled": ROWS.format(5),  # zip against the others, each value as often as before
}
MECHANISMS: dict[str, dict[str, Any]] = {
    "bucketize": {"threshold": "1/3"},
    "fakes": {"threshold": "1/2", "fake_values": 1},
    "randomize": {"kind": "randomize", "rho1": "1/5", "rho2": "1/2"},
    "permute": {"kind": "permute", "k": 3, "e": 2},
}


def lay_out(folder: Path, rows: str, mechanism: dict[str, Any], order: str) -> list[tuple[Any, ...]]:
    """The rows of a release by a key file, without zip; records are in the order of their age, which names them."""
    write(folder / "t.parquet", rows)
    release = folder / "r.duckdb"
    spec = {
        "source": {"file": folder / "t.parquet"},
        "columns": {"quasi_identifiers": ["age", "zip"], "sensitive": "s", "categorical": "k" not in mechanism},
        "release": {"name": "r", "to": release, "order": order},
        "mechanism": mechanism,
        "ledger": {"off": True},
    }
    privsql.publish(privsql.build(spec), key_file=folder / "key", replace=True)
    table = "perturbed" if mechanism.get("kind") == "randomize" else "qit"
    with duckdb.connect(str(release), read_only=True) as db:
        return db.execute(f"SELECT * EXCLUDE (age, zip) FROM {table} ORDER BY age").fetchall()


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", rest_slow(MECHANISMS))
@pytest.mark.parametrize("order", rest_slow(["stream", "portable"]))
def test_other_values_and_other_pairs_are_laid_out_anew(tmp_path: Path, mechanism: str, order: str) -> None:
    first = lay_out(tmp_path, ROWS.format(0), MECHANISMS[mechanism], order)
    layouts = {name: lay_out(tmp_path, rows, MECHANISMS[mechanism], order) for name, rows in TABLES.items()}
    assert len(first) == 138
    assert layouts["same"] == first
    assert layouts["recoded"] != first
    assert layouts["shuffled"] != first
