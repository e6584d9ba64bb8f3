"""Releases of every mechanism with something changed at random: each change is found, or shown to be harmless.

A change is harmless where the release holds, in order, what it held before; and where it could not be told from a
release that was published like this: noise and perturbed values are drawn, so another draw is as good (``DRAWN``).
Whoever changes them without the source adds nothing about anybody: that is post-processing of what was released.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from adversarial.test_leaves import beyond_words, leaves
from support import shop as baskets
from support.commands import MANIFEST, manifest, run, succeeded
from support.tampering import rewrite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Random = random.Random
    Change = Callable[[duckdb.DuckDBPyConnection, Random], str]

SEED = 1
# What nobody can tell from another draw: counts with noise, and rows of a perturbed table.
DRAWN = {
    "randomize": ("perturbed",),
    "setvalued": ("privsql_tree", "itemsets"),
    "views": ("privsql_marginals", "privsql_sets"),
    "contingency": ("privsql_tree", "cells"),
}
KINDS = ["bucketize", "folder", "randomize", "permute", "setvalued", "views", "contingency"]


@dataclass(frozen=True)
class Place:
    """A release, and the specification that it was made by."""

    release: Path
    spec: Path


@pytest.fixture(scope="module")
def places(ward: Path, hospital: Path, firm: Path, shop: Path, town: Path) -> dict[str, Place]:
    """One release of every mechanism."""
    return {
        "bucketize": Place(ward / "ill.duckdb", ward / "spec.toml"),
        "folder": Place(ward / "ill", ward / "spec.toml"),
        "randomize": Place(hospital / "pp.duckdb", hospital / "pp.toml"),
        "permute": Place(firm / "ill.duckdb", firm / "spec.toml"),
        "setvalued": Place(shop / "shop.duckdb", shop / "spec.toml"),
        "contingency": Place(town / "people.duckdb", town / "spec.toml"),
    }


def views(shop: Place, folder: Path) -> Place:
    """A release of views of the same item sets."""
    shutil.copy(shop.spec.parent / "shop.parquet", folder)
    made = Place(folder / "shop.duckdb", baskets.spec(folder, mechanism=baskets.VIEWS))
    succeeded("publish", made.spec, "--seed", 7)
    return made


# Changes of tables: each says what it did, for the message ---


def _one(db: duckdb.DuckDBPyConnection, draw: Random) -> tuple[str, list[tuple[Any, ...]], int]:
    """A table with two rows or more, its columns, and the number of one of its rows."""
    sql = "SELECT table_name FROM duckdb_tables() WHERE estimated_size > 1 AND table_name <> ? ORDER BY 1"
    table = draw.choice(db.execute(sql, [MANIFEST]).fetchall())[0]
    (size,) = db.execute(f"SELECT COUNT(*) FROM {table}").fetchall()[0]
    return table, db.execute(f"DESCRIBE {table}").fetchall(), draw.randrange(size)


def changed_cell(db: duckdb.DuckDBPyConnection, draw: Random) -> str:
    """Another value of the column's type, of the column itself, or NULL."""
    table, columns, row = _one(db, draw)
    name, kind = draw.choice(columns)[:2]
    own = f"(SELECT {name} FROM {table} WHERE rowid = {row})"
    other = f"(SELECT {name} FROM {table} WHERE {name} IS DISTINCT FROM {own} ORDER BY hash(rowid + {row}) LIMIT 1)"
    near = [f"{name} + 1", f"{name} - 1", f"{name} * 2", "0", "-1"] if kind not in {"VARCHAR", "BOOLEAN"} else ["''"]
    value = draw.choice([other, other, "NULL", *([] if kind.endswith("[]") else near)])
    db.execute(f"UPDATE {table} SET {name} = TRY_CAST({value} AS {kind}) WHERE rowid = {row}")
    return f"{table}.{name} := {value} in row {row}"


def dropped_row(db: duckdb.DuckDBPyConnection, draw: Random) -> str:
    """One row less."""
    table, _, row = _one(db, draw)
    db.execute(f"DELETE FROM {table} WHERE rowid = {row}")
    return f"{table}: without row {row}"


def doubled_row(db: duckdb.DuckDBPyConnection, draw: Random) -> str:
    """One row twice."""
    table, _, row = _one(db, draw)
    db.execute(f"INSERT INTO {table} SELECT * FROM {table} WHERE rowid = {row}")
    return f"{table}: row {row} twice"


def swapped_cells(db: duckdb.DuckDBPyConnection, draw: Random) -> str:
    """The values of a column in two rows."""
    table, columns, row = _one(db, draw)
    name = draw.choice(columns)[0]
    (size,) = db.execute(f"SELECT COUNT(*) FROM {table}").fetchall()[0]
    other = draw.randrange(size)
    values = [db.execute(f"SELECT {name} FROM {table} WHERE rowid = {one}").fetchall()[0][0] for one in (row, other)]
    for one, value in zip((other, row), values, strict=True):
        db.execute(f"UPDATE {table} SET {name} = ? WHERE rowid = ?", [value, one])
    return f"{table}.{name}: rows {row} and {other} swapped"


def moved_row(db: duckdb.DuckDBPyConnection, draw: Random) -> str:
    """A row in another place: the order may tell who is who."""
    table, _, row = _one(db, draw)
    (size,) = db.execute(f"SELECT COUNT(*) FROM {table}").fetchall()[0]
    to = draw.randrange(size)
    db.execute(
        f"CREATE TEMP TABLE kept AS SELECT * FROM {table} ORDER BY CASE rowid WHEN {row} THEN {to}.5 ELSE rowid END"
    )
    db.execute(f"DELETE FROM {table}")
    db.execute(f"INSERT INTO {table} FROM kept")
    db.execute("DROP TABLE kept")
    return f"{table}: row {row} after row {to}"


def changed_definition(db: duckdb.DuckDBPyConnection, draw: Random) -> str:
    """A column or table more or less, or another view."""
    table, columns, _ = _one(db, draw)
    name = draw.choice(columns)[0]
    (view,) = db.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()[0]
    sql = draw.choice([
        f"ALTER TABLE {table} ADD COLUMN more INTEGER",
        f"ALTER TABLE {table} RENAME COLUMN {name} TO other",
        f"ALTER TABLE {table} DROP COLUMN {name}" if len(columns) > 1 else f"DROP TABLE {table}",
        f"ALTER TABLE {table} ALTER COLUMN {name} SET DEFAULT NULL",
        f"ALTER TABLE {table} RENAME TO other",
        f"CREATE TABLE other AS FROM {table}",
        f"CREATE OR REPLACE VIEW {view} AS SELECT * FROM {table}",
        f"CREATE INDEX other ON {table} ({name})",
        f"COMMENT ON TABLE {table} IS 'Ann has the flu'",
        "CREATE MACRO count_star() AS 0",
    ])  # fmt: skip
    db.execute(sql)
    return sql


def changed_manifest(db: duckdb.DuckDBPyConnection, draw: Random) -> str:
    """One number, word or truth of the manifest; ``test_leaves`` walks over all of them."""
    key, text = draw.choice(db.execute(f"SELECT key, value FROM {MANIFEST} ORDER BY 1").fetchall())
    stated = json.loads(text)
    other = _other(stated, draw)
    db.execute(f"UPDATE {MANIFEST} SET value = ? WHERE key = ?", [json.dumps(other), key])
    return f"manifest: {key} := {json.dumps(other)[:200]}"


def _other(value: Any, draw: Random) -> Any:
    """A value of which one leaf is another."""
    if isinstance(value, dict) and value:
        key = draw.choice(sorted(value))
        return value | {key: _other(value[key], draw)}
    if isinstance(value, list) and value:
        place = draw.randrange(len(value))
        return [*value[:place], _other(value[place], draw), *value[place + 1 :]]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + draw.choice([1, -1, 1000])
    return f"{value}x" if isinstance(value, str) else "other"


CHANGES: list[Change] = [
    changed_cell, changed_cell, dropped_row, doubled_row, swapped_cells, moved_row,
    changed_definition, changed_manifest,
]  # fmt: skip


# Applying them to files and folders ---


def torn(copy: Path, draw: Random) -> str:
    """A byte of the release, or of one of its files, is another; or the file ends early."""
    file = draw.choice(sorted(copy.iterdir())) if copy.is_dir() else copy
    content = bytearray(file.read_bytes())
    place = draw.randrange(len(content))
    if draw.random() < 0.2:
        file.write_bytes(content[:place])
        return f"{file.name} ends after {place} bytes"
    content[place] ^= 1 << draw.randrange(8)
    file.write_bytes(content)
    return f"a bit of {file.name} at {place}"


def mutated(copy: Path, draw: Random) -> str:
    """One change of a copy of a release."""
    if draw.random() < 0.15:
        return torn(copy, draw)
    change = draw.choice(CHANGES)
    if not copy.is_dir():
        with duckdb.connect(str(copy)) as db:
            said = change(db, draw)
        rewrite(copy)  # a deleted row is found by what is left of it alone
        return said
    with duckdb.connect() as db:  # the folder's tables, changed and written again
        for file in sorted(copy.glob("*.parquet")):
            db.execute(f"CREATE TABLE {file.stem} AS FROM '{file}'")
        db.execute("CREATE VIEW people AS FROM qit")
        said = change(db, draw)
        for file in copy.glob("*.parquet"):
            file.unlink()
        for (name,) in db.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            db.execute(f"COPY {name} TO '{copy / name}.parquet' (WRITE_BLOOM_FILTER false)")
    return said


def content(release: Path) -> Any:
    """All that a release says, rows in order; None for one that can't be read."""
    try:
        with duckdb.connect() as db:
            if release.is_dir():
                names = {file.stem: f"'{file}'" for file in sorted(release.glob("*.parquet"))}
            else:
                db.execute(f"ATTACH '{release}' AS r (READ_ONLY)")
                found = db.execute(
                    "SELECT table_name FROM duckdb_tables() WHERE database_name = 'r' ORDER BY 1"
                ).fetchall()
                names = {name: f'r."{name}"' for (name,) in found}
            made = db.execute("SELECT sql FROM duckdb_views() WHERE database_name = 'r' ORDER BY 1").fetchall()
            made += db.execute(
                "SELECT sql, comment FROM duckdb_tables() WHERE database_name = 'r' ORDER BY 1"
            ).fetchall()
            made += db.execute("SELECT sql FROM duckdb_indexes() WHERE database_name = 'r'").fetchall()
            made += db.execute("SELECT function_name FROM duckdb_functions() WHERE database_name = 'r'").fetchall()
            return made, {name: repr(db.execute(f"FROM {table}").fetchall()) for name, table in names.items()}
    except duckdb.Error:
        return None


def stated(release: Path) -> dict[str, Any]:
    """The manifest of a file or a folder."""
    if release.is_file():
        return manifest(release)
    with duckdb.connect() as db:
        found = db.execute(f"FROM '{release / MANIFEST}.parquet'").fetchall()
    return {key: json.loads(value) for key, value in found}


def told_apart(before: Any, after: Any) -> set[str]:
    """The tables in which two releases differ; ``"definitions"`` for the rest."""
    if after is None or before[0] != after[0] or before[1].keys() != after[1].keys():
        return {"definitions"}
    return {name for name, held in before[1].items() if after[1][name] != held}


def only_words(before: Any, after: Any) -> bool:
    """Whether all that differs is what the publisher alone can say (``test_leaves``)."""
    one, other = (dict(leaves(stated)) for stated in (before, after))
    ways = {path for path in one.keys() | other.keys() if one.get(path, ...) != other.get(path, ...)}
    return not beyond_words(".".join(map(str, path)) for path in ways)


def verified(release: Path, *more: object) -> bool:
    """Whether ``verify`` finds nothing; it must end with 0, 1 or 4, and without a traceback."""
    done = run("verify", release, *more, "--json")
    assert done.crash is None, repr(done.crash)
    assert done.code in {0, 1, 4}, f"exit {done.code}: {done.err}"
    return done.code == 0


def plausible(release: Path, source: Path) -> bool:
    """Whether records of a bucketized table can be dealt like this: with unique quasi-identifiers, exactly one way."""
    key = "(age, sex, zip)"
    with duckdb.connect() as db:
        db.execute(f"CREATE TABLE source AS SELECT {key} AS key, disease FROM '{source}'")
        db.execute(f"ATTACH '{release}' AS r (READ_ONLY)") if release.is_file() else None
        qit, st = (
            ("r.qit", "r.st") if release.is_file() else (f"'{release / 'qit.parquet'}'", f"'{release / 'st.parquet'}'")
        )
        sure = f"""SELECT bid, disease, COUNT(*) AS n FROM {qit} AS q JOIN source AS s ON {key} = s.key
            WHERE s.key IN (SELECT key FROM source GROUP BY key HAVING COUNT(DISTINCT disease) = 1) GROUP BY ALL"""
        beyond = (
            f"SELECT * FROM ({sure}) AS a LEFT JOIN {st} AS b USING (bid, disease) WHERE a.n > coalesce(b.count, 0)"
        )
        return not db.execute(beyond).fetchall()


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    "number", [pytest.param(4, marks=pytest.mark.slow), pytest.param(80, marks=pytest.mark.soak(part="mutations"))]
)
def test_every_change_is_found_or_harmless(
    places: dict[str, Place], tmp_path: Path, name: str, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """500 in all: 80 a mechanism, 60 where a release holds many stand-ins."""
    if name in {"setvalued", "views", "contingency"}:
        number = min(number, 60)
    place, counted, missed = places.get(name) or views(places["setvalued"], tmp_path), Counter[str](), []
    before, draw = content(place.release), random.Random(f"{SEED} {name}")  # noqa: S311 (no secret)
    for i in range(number):
        copy = tmp_path / str(i) / place.release.name
        copy.parent.mkdir()
        shutil.copytree(place.release, copy) if place.release.is_dir() else shutil.copy(place.release, copy)
        said = mutated(copy, draw)
        if not verified(copy):
            counted["found alone"] += 1
        elif not (differ := told_apart(before, content(copy))):
            counted["nothing changed"] += 1
        elif differ == {MANIFEST} and only_words(*(stated(one) for one in (place.release, copy))):
            counted["the publisher's word"] += 1
        elif not verified(copy, "--source", place.spec):
            counted["found with the source"] += 1
        elif differ <= set(DRAWN.get(name, ())):
            counted["another draw"] += 1
        elif (
            name in {"bucketize", "folder"}
            and differ == {"qit"}
            and plausible(copy, place.spec.parent / "people.parquet")
        ):
            counted["another dealing"] += 1
        else:
            missed.append(f"{said} ({', '.join(sorted(differ))})")
        shutil.rmtree(copy.parent)
    with capsys.disabled():
        print(f"\n{name}: {number} changes; {', '.join(f'{n} {what}' for what, n in sorted(counted.items()))}")
    assert not missed, f"{len(missed)} of {number} changes pass:\n" + "\n".join(missed)
    assert counted["found alone"] > number / 3
