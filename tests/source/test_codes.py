"""Codes are not values: a key lays out tables with equal codes, but other values or other pairs of them, anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import privsql
from privsql.errors import UsageError
from privsql.model import packing
from privsql.source import table
from support.commands import write
from support.loops import rest_slow

if TYPE_CHECKING:
    from collections.abc import Sequence
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


VALUES = list(range(24))
PRIVATE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "tables": (
        {"quasi_identifiers": ["age", "zip"], "sensitive": "s"},
        {"kind": "randomize", "algorithm": "tables", "epsilon": "0.2", "values": VALUES[:6]},
    ),
    "marginals": (
        {"categories": ["zip", "s"]},
        {
            "kind": "contingency",
            "algorithm": "marginals",
            "epsilon": 1,
            "domains": {"zip": VALUES, "s": VALUES[:6]},
        },
    ),
    "views": ({"items": "goods"}, {"kind": "setvalued", "algorithm": "views", "epsilon": "0.2", "universe": VALUES}),
}
PAIRED = "SELECT age, zip, s, [zip, s] AS goods FROM ({})"
WIDE = "SELECT *, {} FROM ({{}})".format(", ".join(f"age % {14 + i} AS w{i}" for i in range(14)))  # 70 bits


def release_rows(
    folder: Path, rows: str, columns: dict[str, Any], mechanism: dict[str, Any], order: str | None = None, **key: Path
) -> Path:
    """A release of rows."""
    write(folder / "t.parquet", rows)
    spec = {
        "source": {"file": folder / "t.parquet"},
        "columns": columns,
        "release": {"name": "r", "to": folder / "r.duckdb"} | ({"order": order} if order else {}),
        "mechanism": mechanism,
        "ledger": {"off": True},
    }
    privsql.publish(privsql.build(spec), replace=True, **key)
    return folder / "r.duckdb"


def lay_out(
    folder: Path, rows: str, mechanism: dict[str, Any], order: str, wide: Sequence[str] = ()
) -> list[tuple[Any, ...]]:
    """The rows of a release by a key file, without zip; records are in the order of their age, which names them."""
    columns = {"quasi_identifiers": ["age", "zip", *wide], "sensitive": "s", "categorical": "k" not in mechanism}
    release = release_rows(folder, rows, columns, mechanism, order, key_file=folder / "key")
    published = "perturbed" if mechanism.get("kind") == "randomize" else "qit"
    with duckdb.connect(str(release), read_only=True) as db:
        return db.execute(f"SELECT * EXCLUDE (age, zip) FROM {published} ORDER BY age").fetchall()


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


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", rest_slow(MECHANISMS))
def test_records_of_more_than_64_bits_are_laid_out_in_the_same_way(tmp_path: Path, mechanism: str) -> None:
    names = [f"w{i}" for i in range(14)]
    with pytest.MonkeyPatch.context() as patch:
        met = watch_packing(patch)
        first, *others = (
            lay_out(tmp_path, WIDE.format(rows), MECHANISMS[mechanism], "stream", names)
            for rows in (ROWS.format(0), *TABLES.values())
        )
        assert met == [False] * 4
    assert others[0] == first
    assert others[1] != first
    assert others[2] != first


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", rest_slow(MECHANISMS))
def test_records_in_integers_and_in_columns_make_one_release(tmp_path: Path, mechanism: str) -> None:
    """Key, layout and stored order are the same."""
    with pytest.MonkeyPatch.context() as patch:
        met = watch_packing(patch)
        packed = lay_out(tmp_path, ROWS.format(0), MECHANISMS[mechanism], "stream")
        assert met == [True]
        patch.setattr(packing, "fits_word", lambda _: False)
        assert lay_out(tmp_path, ROWS.format(0), MECHANISMS[mechanism], "stream") == packed


def watch_packing(patch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the records of each publication fit into integers, from now on."""
    pack, met = packing.pack_records, []

    def watched(*args: Any) -> Any:
        met.append(isinstance(packed := pack(*args), packing.PackedRecords))
        return packed

    patch.setattr(table, "pack_records", watched)
    return met


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", rest_slow(PRIVATE))
def test_noise_follows_from_no_key_and_no_table(tmp_path: Path, mechanism: str) -> None:
    columns, params = PRIVATE[mechanism]
    with pytest.raises(UsageError, match="can't be repeated"):
        release_rows(tmp_path, PAIRED.format(ROWS.format(0)), columns, params, key_file=tmp_path / "key")
    assert not (tmp_path / "r.duckdb").exists()
    noisy = set()
    for rows in (ROWS.format(0), *TABLES.values()):
        release = release_rows(tmp_path, PAIRED.format(rows), columns, params)
        with duckdb.connect(str(release), read_only=True) as db:
            noisy.add(tuple(db.execute("SELECT clique, cell, count FROM privsql_marginals").fetchall()))
    assert len(noisy) == 4
