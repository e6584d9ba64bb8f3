"""Any column name can be published: privsql's own columns give way, and nothing else of a release changes by a name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from privsql.engine.files import fold_name, unused_name
from support.commands import manifest, refused, rows, run, succeeded, tables, warehouse, write
from support.loops import each

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

OWN = [
    "code",
    "count",
    "records",
    "weight",
    "bid",
    "size",
    "numerator",
    "denominator",
    "sub_table",
    "protected",
    "part",
]
INSIDE = [
    "q0",
    "s0",
    "s1",
    "g_0",
    "n",
    "t",
    "pos",
    "key",
    "h",
    "rank",
    "set",
    "place",
    "pairs",
    "value",
    "amounts",
    "st",
    "qit",
]
KEYWORDS = ["select", "group", "order", "null", "table", "current_date", "rowid", "true", "filter", "over", "*"]
WRITTEN = [
    'a"b',
    "it's",
    "a.b",
    "a b",
    "ä ö 名",
    " ",
    "__qi__",
    "__weight__",
    "$source",
    "privsql_manifest",
    "x" * 500,
    "-- x",
    "%s",
    "{x}",
    "\\n",
]
ODD = [*OWN, *INSIDE, *KEYWORDS, *WRITTEN]
AWAY = ["BID", "Bid_", "Code", "CODE_", "count", "COUNT_", "weight", "weight_", "Records", "part", "sub_table"]
PLAIN = ("age", "sex", "zip", "disease", "stage")
SICK = """SELECT CAST(20 + i * 7919 % 9 AS INTEGER) AS {0}, CASE WHEN i * 31 % 7 < 3 THEN 'F' END AS {1},
  CAST(i * 104729 % 5 AS INTEGER) AS {2}, 'd' || i * i % 7 AS {3}, i % 2 = 0 AS {4} FROM range({n}) t(i)"""
BUCKETIZE = 'threshold = "2*f + 0.2"\nallow_certain = true'
RANDOMIZE = 'kind = "randomize"\nalgorithm = "pp"\nrho1 = "1/3"\nrho2 = "2/3"\ndelta = "0.05"'
PERMUTE = 'kind = "permute"\nk = 4\ne = "3"'
MARGINALS = 'kind = "contingency"\nepsilon = "20"'
DIFFPART = 'kind = "contingency"\nalgorithm = "diffpart"\nepsilon = "20"'
TABLES = {
    "bucketize": BUCKETIZE,
    "randomize": RANDOMIZE,
    "permute": PERMUTE,
    "marginals": MARGINALS,
    "diffpart": DIFFPART,
}


def quoted(name: str) -> str:
    """A name as SQL takes it."""
    return '"' + name.replace('"', '""') + '"'


def made(folder: Path, kind: str, names: Sequence[str], n: int = 420, format_: str = "duckdb") -> tuple[Path, Path]:
    """A source with these names, its specification and its release under one seed."""
    folder.mkdir(exist_ok=True)
    write(folder / "people.parquet", SICK.format(*map(quoted, names), n=n))
    quasi, sensitive = list(names[:3]), list(names[3:])
    columns = {"quasi_identifiers": quasi, "sensitive": sensitive}
    asked = TABLES[kind]
    if kind == "permute":
        columns = {"quasi_identifiers": list(names[1:]), "sensitive": names[0]}
    if "contingency" in asked:
        columns = {"categories": [*quasi, *sensitive], "nulls": {names[1]: "suppress"}}
        asked += "\n[mechanism.domains]\n" + "".join(f'{json.dumps(name)} = "data"\n' for name in names)
    spec = {
        "source": {"file": "people.parquet"},
        "columns": columns,
        "release": {"name": "ill", "to": "ill", "format": format_},
    }
    path = folder / "spec.toml"
    path.write_text(
        "".join(f"[{part}]\n" + "".join(f"{k} = {_toml(v)}\n" for k, v in keys.items()) for part, keys in spec.items())
        + f"[ledger]\noff = true\n[mechanism]\n{asked}\n",
        encoding="utf-8",
    )
    succeeded("publish", path, "--seed", 1, *(["--to", folder / "ill.duckdb"] if format_ == "duckdb" else []))
    return path, folder / ("ill.duckdb" if format_ == "duckdb" else "ill")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)


def chosen(start: int, names: Sequence[str] = ODD) -> list[str]:
    """Five names that differ, from the ``start``-th on."""
    found: list[str] = []
    for name in names[start:] + names[:start]:
        if len(found) < 5 and fold_name(name) not in map(fold_name, found):
            found.append(name)
    return found


STARTS = range(0, len(ODD), 5)
EVERY_NAME = dict.fromkeys(  # by one mechanism, and those of privsql's own columns by all
    [*((kind, start) for start in (0, 5) for kind in TABLES), *((list(TABLES)[i % 5], n) for i, n in enumerate(STARTS))]
)


@pytest.mark.soak(part="long")
@each(("kind", "start"), EVERY_NAME, few=1)
def test_a_release_is_the_same_whatever_its_columns_are_called(tmp_path: Path, kind: str, start: int) -> None:
    names = chosen(start)
    _, plain = made(tmp_path / "plain", kind, PLAIN)
    spec, odd = made(tmp_path / "odd", kind, names)
    same_tables = [tables(plain), tables(odd)]
    for one in same_tables:
        one.pop("privsql_cliques", None)  # which name the columns
    assert same_tables[0] == same_tables[1]
    succeeded("verify", odd)
    succeeded("verify", odd, "--source", spec)
    attacked, same = (succeeded("attack", path, "--seed", 1, "--json").json for path in (odd, plain))
    succeeded("evaluate", odd, "--source", spec, "--queries", 8)
    assert [one.get("highest") for one in attacked["adversaries"]] == [
        one.get("highest") for one in same["adversaries"]
    ]
    for old, new in zip(PLAIN, names, strict=True):
        asked = [f"SELECT {quoted(name)}, COUNT(*) FROM ill GROUP BY {quoted(name)} ORDER BY 1" for name in (old, new)]
        expected, found = (
            succeeded("query", path, sql, "--json").json for path, sql in zip((plain, odd), asked, strict=True)
        )
        assert [list(row.values()) for row in found["rows"]] == [list(row.values()) for row in expected["rows"]]


@pytest.mark.slow
def test_own_columns_give_way_table_by_table_and_the_manifest_says_so(tmp_path: Path) -> None:
    _, release = made(tmp_path, "bucketize", ["BID", "count", "weight", "Code", "bid_"])
    assert manifest(release)["own_columns"] == {
        "qit": {"bid": "bid_"},
        "privsql_values": {"code": "code_"},
        "ill_weighted": {"weight": "weight_"},
        "ill_pairs": {"weight": "weight_"},
    }
    described = {
        table: [row[0] for row in rows(release, f"DESCRIBE {table}")] for table in ("qit", "st", "ill_weighted")
    }
    assert described == {
        "qit": ["BID", "count", "weight", "bid_"],
        "st": ["bid", "Code", "bid_", "count"],
        "ill_weighted": ["BID", "count", "weight", "Code", "bid_", "weight_", "variance"],
    }
    assert "bid_" in succeeded("verify", release, "--verbose").out
    assert succeeded("verify", release, "--json").json["manifest"]["own_columns"]["qit"] == {"bid": "bid_"}
    assert "own_columns" not in manifest(made(tmp_path / "plain", "bucketize", PLAIN)[1])


@pytest.mark.soak(part="long")
@each("kind", list(TABLES))
@each("form", ["duckdb", "parquet"])
def test_names_that_take_those_that_privsql_gives_way_to(tmp_path: Path, kind: str, form: str) -> None:
    for start in (0, 6):
        names = chosen(start, AWAY)
        spec, release = made(tmp_path / f"away{start}", kind, names, format_=form)
        succeeded("verify", release, "--source", spec)
        succeeded("attack", release, "--source", spec)
        shown = succeeded("query", release, f"SELECT {quoted(names[0])}, COUNT(*) FROM ill GROUP BY 1", "--json").json
        assert len(shown["rows"]) == 9 + (kind == "marginals")  # whose cell for all other values is a group


@pytest.mark.slow
@each(("algorithm", "more"), [("views", "items = 3\n"), ("diffpart", ""), ("basic", "")])
def test_item_sets_may_be_called_like_their_weight(tmp_path: Path, algorithm: str, more: str) -> None:
    write(tmp_path / "b.parquet", "SELECT ['a', chr(98 + CAST(i % 5 AS INTEGER))] AS \"Weight\" FROM range(300) t(i)")
    spec = tmp_path / "spec.toml"
    spec.write_text(
        '[source]\nfile = "b.parquet"\n[columns]\nitems = "Weight"\n[release]\nname = "ill"\nto = "ill.duckdb"\n'
        f'[mechanism]\nkind = "setvalued"\nalgorithm = "{algorithm}"\nepsilon = "9"\nuniverse = "data"\n',
        encoding="utf-8",
    )
    succeeded("publish", spec, "--seed", 1)
    release = tmp_path / "ill.duckdb"
    assert [row[0] for row in rows(release, "DESCRIBE ill_weighted")] == ["Weight", "weight_"]
    succeeded("verify", release, "--source", spec)
    found = succeeded("query", release, "SELECT COUNT(*) FROM ill WHERE list_contains(weight, 'a')", "--json").json
    assert abs(found["rows"][0]["estimate"] - 300) < 20


@pytest.mark.slow
@each(
    "stated",
    [
        {},
        {"qit": {"bid": "age"}},
        {"qit": {"bid": "bid__"}},
        {"qit": {"bid": "bid_"}, "st": {"count": "count"}},
        {"qit": {}},
    ],
    few=1,
)
def test_a_manifest_that_lies_about_own_columns_is_refused(tmp_path: Path, stated: dict[str, Any]) -> None:
    _, release = made(tmp_path, "bucketize", ["bid", *PLAIN[:4]])
    warehouse(
        release,
        f"UPDATE privsql_manifest SET value = '{json.dumps(stated)}' WHERE key = 'own_columns'",
    )
    for command in (("verify", release), ("query", release, "SELECT COUNT(*) FROM ill")):
        refused(run(*command), 4, "gives privsql's columns wrong names" if stated else "its manifest is damaged")
    warehouse(release, "DELETE FROM privsql_manifest WHERE key = 'own_columns'")  # which states none
    refused(run("verify", release), 4, "gives privsql's columns wrong names")


@pytest.mark.slow
def test_an_own_column_lies_where_the_rule_says(tmp_path: Path) -> None:
    _, release = made(tmp_path, "bucketize", ["bid", *PLAIN[:4]])
    warehouse(
        release,
        "DROP VIEW ill_pairs",
        "DROP VIEW ill_weighted",
        "ALTER TABLE qit RENAME bid TO other",
        "ALTER TABLE qit RENAME bid_ TO bid",
    )
    assert run("verify", release).code == 1
    assert run("query", release, "SELECT COUNT(*) FROM ill").code == 1


def test_the_rule() -> None:
    assert [unused_name("bid", names) for names in ([], ["BID"], ["bid", "Bid_"], ["bid__", "bid"])] == [
        "bid",
        "bid_",
        "bid__",
        "bid_",
    ]
    assert unused_name("i", ["\u0130", "\u0131"]) == "i"  # ASCII letters alone are the same in either case
