"""A marker in every text, key, list, table and name of a release, one at a time: verify refuses, or shows it as a word.

The walk knows no field by name, so it meets whatever a release will hold one day. What ``verify`` shows are the
publisher's own words (``Manifest.words``); nothing else of a release may be a free text, whatever version it states.
"""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import duckdb
import pytest

import privsql
from golden.releases import RECIPES, publish_recipes
from privsql import PrivsqlError
from privsql.model.manifest import Manifest
from privsql.model.parameters import Wording
from support.commands import MANIFEST, manifest
from support.places import ROOT
from support.tampering import as_folder, name_manifest, rewrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MARKER = "Ann: HIV"
DIGITS = f"{1:060}"  # more than a number keeps, behind the point or before it: so many could be a text
VERSIONS = (None, "0.9.9")
PEOPLE = """
SELECT CAST(20 + i * 7 % 30 AS INTEGER) AS age, ['Paris', 'Lyon', 'Ulm'][1 + i % 3] AS city, i % 4 AS bid,
  (['low', 'mid', 'high'][1 + i % 3])::ENUM ('low', 'mid', 'high', 'top') AS pay,
  CASE WHEN i % 9 > 0 THEN i % 5 END AS zip,
  DATE '2020-01-01' + CAST(i * i % 83 AS INTEGER) AS since, (i // 2) AS person, i AS id,
  'd' || CASE WHEN i % 42 < 12 THEN 0 WHEN i % 42 < 20 THEN 1 WHEN i % 42 < 26 THEN 2 WHEN i % 42 < 31 THEN 3
    WHEN i % 42 < 35 THEN 4 WHEN i % 42 < 38 THEN 5 ELSE i % 42 - 32 END AS disease,
  's' || (i * i + i // 7) % 4 AS stage
FROM range(252) t(i)
"""
WORDS = {name: f"what a trial says of {name}" for name in get_args(Wording)}
COARSE = {
    "quasi_identifiers": ["age", "city", "bid", "pay", "zip"],
    "bins": {"age": 10},
    "levels": {"city": {"Paris": "FR", "Lyon": "FR", "Rome": "IT"}},
    "others": {"city": "elsewhere"},
}
# What a release may state beside the recipes of the golden files.
RICH: dict[str, dict[str, Any]] = {
    "rows": {
        "columns": {"record": "person", "item": "disease"},
        "mechanism": {"kind": "setvalued", "epsilon": 20, "universe": [f"d{k}" for k in range(10)]},
    },
    "people": {
        "source": {"person": "person", "persons": "one"},
        "columns": {**COARSE, "sensitive": "disease"},
        "mechanism": {
            "threshold": {"default": "2*f + 0.1", "d9": "0.9"},
            "groups": {"rare": {"values": ["d4", "d5"], "threshold": "0.9"}},
        },
        "release": {**WORDS, "sampling_rate": 0.05},
    },
    "queried": {
        "columns": {"quasi_identifiers": ["age"], "sensitive": "disease"},
        "mechanism": {"threshold": {"query": "SELECT DISTINCT disease, 0.6 FROM people"}},
    },
    "counted": {
        "source": {"person": "person", "persons": "count"},
        "columns": {"quasi_identifiers": ["age", "city"], "sensitive": "since"},
        "mechanism": {"kind": "permute", "k": 3, "e": "3 days"},
    },
    "tables": {
        "columns": {"quasi_identifiers": ["age", "city"], "sensitive": "disease"},
        "mechanism": {"kind": "randomize", "algorithm": "tables", "values": [f"d{i}" for i in range(9)], "epsilon": 3},
    },
    "cells": {
        "columns": {"categories": ["city", "zip", "stage", "age"]},
        "mechanism": {
            "kind": "contingency", "epsilon": 9, "workload": [["city", "zip"]], "measures": ["age"],
            "domains": {
                "city": {"query": "SELECT unnest(['Paris', 'Lyon', 'Ulm'])"}, "zip": [0, 1, 2, 3, 4],
                "stage": {"items": ["s0", "s1", "s2", "s3"], "prefix": 2},
                "age": {"bins": {"from": 20, "to": 50, "by": 10}},
            },
        },
    },
    "again": {
        "columns": {"quasi_identifiers": ["age", "city"], "sensitive": "disease"},
        "mechanism": {"threshold": "0.5"},
        "ledger": {},
    },
}  # fmt: skip
ALL = (*RICH, *RECIPES)
FEW = "people"  # of which every run tries some markers


@dataclass(frozen=True)
class Made:
    """A release, as a file and as a folder, and the specification that it was made by, None where a test has none."""

    file: Path
    folder: Path
    spec: privsql.Spec | None


def publish_rich(place: Path, name: str) -> privsql.Spec:
    """Publish a release by name, and say by which specification."""
    people = place / "source.duckdb"
    if not people.exists():
        with duckdb.connect(str(people)) as db:
            db.execute(f"CREATE TABLE people AS {PEOPLE}")
    said = {"ledger": {"off": True}, **RICH[name]}
    said["source"] = {"database": people, "table": "people", **said.get("source", {})}
    said["release"] = {"name": "t", "to": place / f"{name}.duckdb", **said.get("release", {})}
    if name == "again":
        said["ledger"] = {"database": place / "ledger.duckdb"}
        first = said["release"] | {"to": place / "first.duckdb"}
        privsql.publish({**said, "release": first}, seed=1, threads=1)
    if name == "people":  # which the next one replaces, and says so
        privsql.publish(said, seed=1, threads=1)
    how = {"seed": 2, "threads": 1, "allow_composition": name == "again", "replace": name == "people"}
    return privsql.publish(said, **how).spec


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """The release of a name, made when it is wanted."""
    place, made = tmp_path_factory.mktemp("made"), dict[str, Made]()

    def find(name: str) -> Made:
        if name not in made:
            spec = publish_rich(place, name) if name in RICH else None
            if spec is None:
                publish_recipes(place, [name])
            file, folder = place / f"{name}.duckdb", as_folder(place / f"{name}.duckdb", place / name)
            assert privsql.verify(file).ok
            assert privsql.verify(folder).ok
            made[name] = Made(file, folder, spec)
        return made[name]

    return find


def passes(release: Path, original: Path, *sources: privsql.Spec | None) -> bool:
    """Whether a release is verified with every source, and verify shows no other words than those of the original."""
    for source in (None, *(one for one in sources if one is not None)):
        try:
            outcome = privsql.verify(release, source)
        except PrivsqlError:
            return False
        if not outcome.ok or outcome.manifest.words != privsql.verify(original).manifest.words:
            return False
    return True


# The manifest ---


def walk(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every part of an object with the way to it, the whole first."""
    yield path, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from walk(part, (*path, key))


def marked(value: Any) -> Iterator[Any]:
    """A value with the marker in it, in every way that leaves it of its kind."""
    if isinstance(value, dict):
        for inner in (*list(value.values())[:1], MARKER, 0):
            yield {**value, MARKER: inner}
        yield from ({MARKER if key == name else key: one for key, one in value.items()} for name in list(value)[:1])
    elif isinstance(value, list):
        yield from ([*value, MARKER], [MARKER, *value[1:]])
    elif isinstance(value, str):
        yield from (MARKER, f"{value} {MARKER}", f"{value}{DIGITS}", f"{value}.{DIGITS}")
    elif value is None:
        yield from (MARKER, [MARKER], {MARKER: 0})
    elif not isinstance(value, bool):
        yield MARKER


def put(stated: Any, path: tuple[Any, ...], value: Any) -> Any:
    """An object with another part."""
    if not path:
        return value
    made = copy.deepcopy(stated)
    holder = made
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return made


def list_texts(
    stated: dict[str, Any], lent: dict[str, Any], version: str | None
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The rows of a manifest with one marker each, and where it is: in a value, or in how a value is written.

    ``lent``: a manifest with every entry that there is, of which the other one takes those that it lacks.
    """
    base = stated if version is None else {**stated, "privsql": version}
    for key in lent.keys() - stated.keys():
        for path, value in walk(lent[key]):
            for other in marked(value):
                rows = [(name, json.dumps(one)) for name, one in {**base, key: put(lent[key], path, other)}.items()]
                yield f"{key}, lent: {path} := {json.dumps(other)[:80]}", rows
    for path, value in walk(base):
        for other in marked(value):
            rows = [(key, json.dumps(one)) for key, one in put(base, path, other).items()]
            yield f"{'.'.join(map(str, path))} := {json.dumps(other)[:80]}", rows
    plain = [(key, json.dumps(one)) for key, one in base.items()]
    for number, (key, text) in enumerate(plain):
        first = [*plain[:number], (key, json.dumps(MARKER))]
        yield f"{key} twice", [*first, *plain[number:]]
        yield f"{key} behind blanks", [*plain[:number], (key, f" {text}"), *plain[number + 1 :]]
        if text.startswith("{"):
            hidden = f'{{"{next(iter(base[key]), "")}": "{MARKER}", {text[1:]}'
            yield f"{key} with a key twice", [*plain[:number], (key, hidden), *plain[number + 1 :]]


def write_manifest(release: Path, to: Path, rows: list[tuple[str, str]]) -> Path:
    """A copy of a release, which is a file or a folder, with another manifest."""
    if release.is_dir():
        shutil.copytree(release, to, dirs_exist_ok=True)
        values = ", ".join("(?, ?)" for _ in rows)
        with duckdb.connect() as db:
            db.execute(f"CREATE TABLE m AS SELECT * FROM (VALUES {values}) AS t(key, value)", sum(rows, ()))
            db.execute(f"COPY m TO '{to / MANIFEST}.parquet' (COMPRESSION zstd, WRITE_BLOOM_FILTER false)")
        return name_manifest(to)
    shutil.copy(release, to)
    with duckdb.connect(str(to)) as db:
        db.execute(f"DELETE FROM {MANIFEST}")
        db.executemany(f"INSERT INTO {MANIFEST} VALUES (?, ?)", rows)
    rewrite(to)
    return to


def read_manifest(release: Path) -> dict[str, Any]:
    """The manifest of a file or a folder."""
    if release.is_file():
        return manifest(release)
    with duckdb.connect() as db:
        return {key: json.loads(text) for key, text in db.execute(f"FROM '{release / MANIFEST}.parquet'").fetchall()}


SOME_SLOW = ("people", "components", "diffpart")  # of which the slow tests try every 16th marker
SLOW, SOAK = pytest.mark.slow, pytest.mark.soak(part="mutations")
WALKS = [
    pytest.param(FEW, 400),
    pytest.param("cells", 400, marks=SLOW),
    *(pytest.param(name, 16, marks=SLOW) for name in SOME_SLOW),
    *(pytest.param(name, 1, marks=SOAK) for name in ALL),
]
# A file and a folder state the same manifest: of a file a few markers are tried, or in the soak part all of them.
FILES = [*(pytest.param(name, 400, "file", marks=SLOW) for name in (FEW, "cells")),
         *(pytest.param(name, 1, "file", marks=SOAK) for name in ALL)]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "step", "form"), [*(pytest.param(*one.values, "folder", marks=one.marks) for one in WALKS), *FILES]
)
def test_a_marker_in_a_manifest_is_found(
    releases: Callable[[str], Made], tmp_path: Path, name: str, step: int, form: str
) -> None:
    release = getattr(releases(name), form)
    stated, found = read_manifest(release), []
    same = write_manifest(release, tmp_path / f"same-{release.name}", [(k, json.dumps(v)) for k, v in stated.items()])
    assert privsql.verify(same).ok
    lent = read_manifest(releases("people").folder)
    cases = [case for version in VERSIONS for case in list_texts(stated, lent, version)]
    for said, rows in cases[len(form) % step :: step]:
        if passes(write_manifest(release, tmp_path / f"other-{release.name}", rows), release):
            found.append(said)
    assert not found, "\n".join(found)


# Tables, names and comments ---

NAMED = f"""
SELECT 'a comment on ' || table_name, format('COMMENT ON TABLE "{{}}" IS ''{MARKER}''', table_name) FROM duckdb_tables()
UNION ALL SELECT 'the name of ' || table_name, format('ALTER TABLE "{{}}" RENAME TO "{MARKER}"', table_name)
  FROM duckdb_tables()
UNION ALL SELECT 'a comment on ' || view_name, format('COMMENT ON VIEW "{{}}" IS ''{MARKER}''', view_name)
  FROM duckdb_views() WHERE NOT internal
UNION ALL SELECT 'the name of ' || view_name, format('ALTER VIEW "{{}}" RENAME TO "{MARKER}"', view_name)
  FROM duckdb_views() WHERE NOT internal
UNION ALL SELECT 'a comment on ' || table_name || '.' || column_name,
  format('COMMENT ON COLUMN "{{}}"."{{}}" IS ''{MARKER}''', table_name, column_name)
  FROM duckdb_columns() WHERE NOT internal
UNION ALL SELECT 'the name of ' || table_name || '.' || column_name,
  format('ALTER TABLE "{{}}" RENAME COLUMN "{{}}" TO "{MARKER}"', table_name, column_name)
  FROM duckdb_columns() JOIN duckdb_tables() USING (table_name) WHERE NOT duckdb_columns.internal
UNION ALL SELECT 'a default of ' || table_name || '.' || column_name,
  format('ALTER TABLE "{{}}" ALTER COLUMN "{{}}" SET DEFAULT ''{MARKER}''', table_name, column_name)
  FROM duckdb_columns() JOIN duckdb_tables() USING (table_name)
  WHERE NOT duckdb_columns.internal AND data_type = 'VARCHAR'
UNION ALL SELECT col0, col1 FROM (VALUES
  ('a table', 'CREATE TABLE "{MARKER}" (a INTEGER)'), ('a view', 'CREATE VIEW "{MARKER}" AS SELECT 1 AS a'),
  ('a macro', 'CREATE MACRO m() AS ''{MARKER}'''), ('a type', 'CREATE TYPE t AS ENUM (''{MARKER}'')'),
  ('a sequence', 'CREATE SEQUENCE "{MARKER}"'), ('a schema', 'CREATE SCHEMA "{MARKER}"'),
  ('an index', 'CREATE INDEX "{MARKER}" ON {MANIFEST} (key)'))
"""
CELLS = f"""
SELECT table_name || '.' || column_name,
  format('UPDATE "{{}}" SET "{{}}" = {{}} WHERE rowid = 0', table_name, column_name,
  CASE data_type WHEN 'VARCHAR' THEN '''{MARKER}''' ELSE '[''{MARKER}'']' END)
FROM duckdb_columns() JOIN duckdb_tables() USING (table_name)
WHERE NOT duckdb_columns.internal AND data_type IN ('VARCHAR', 'VARCHAR[]') AND table_name <> '{MANIFEST}'
"""


def change_file(release: Path, to: Path, statement: str) -> Path:
    """A copy of a release after a statement."""
    shutil.copy(release, to)
    with duckdb.connect(str(to)) as db:
        views = db.execute("SELECT sql, view_name FROM duckdb_views() WHERE NOT internal").fetchall()
        if "RENAME" in statement and "ALTER TABLE" in statement:  # which DuckDB refuses below a view
            for _, view in views:
                db.execute(f'DROP VIEW "{view}"')
        db.execute(statement)
    rewrite(to)
    return to


@pytest.mark.parametrize(("name", "step"), WALKS)
def test_a_marker_beside_the_values_of_a_file_is_found(
    releases: Callable[[str], Made], tmp_path: Path, name: str, step: int
) -> None:
    made, found = releases(name), []
    with duckdb.connect(str(made.file), read_only=True) as db:
        cases = db.execute(NAMED).fetchall()
    for said, statement in cases[::step]:
        if passes(change_file(made.file, tmp_path / f"{name}.duckdb", statement), made.file):
            found.append(said)
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", RICH)
def test_a_marker_in_a_table_is_found(releases: Callable[[str], Made], tmp_path: Path, name: str) -> None:
    """Alone, or beside the source: what a person's record holds only the source tells."""
    made, found = releases(name), []
    with duckdb.connect(str(made.file), read_only=True) as db:
        cases = db.execute(CELLS).fetchall()
    for said, statement in cases:
        if passes(change_file(made.file, tmp_path / f"{name}.duckdb", statement), made.file, made.spec):
            found.append(said)
    assert not found, "\n".join(found)
    assert cases


@pytest.mark.slow
def test_the_richest_releases_have_every_entry(releases: Callable[[str], Made]) -> None:
    """So that the walk meets each, whichever a release has; a schema says no more of itself than that it is one."""
    stated = [read_manifest(releases(name).folder).keys() for name in ("people", "rows")]
    assert stated[0] | stated[1] == Manifest.model_fields.keys() - {"place"}


@pytest.mark.slow
def test_the_words_of_a_publisher_are_shown_and_documented(releases: Callable[[str], Made], tmp_path: Path) -> None:
    made = releases("people")
    words = privsql.verify(made.file).as_json()["words"]
    assert words == {"name": "t", "columns": "age, city, bid, pay, zip, disease", "groups of values": "rare", **WORDS}
    said = " ".join((ROOT / "SECURITY.md").read_text(encoding="utf-8").split())
    listed = said[said.index("the publisher's own words:") :].split(".")[0]
    assert [name for name in words if name not in listed] == []
