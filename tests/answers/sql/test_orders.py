"""ENUM columns come back in the order of their type, and no release names a label that none of its records has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from sqlglot import exp

import privsql as api
from privsql.answers.sql.grammar import in_order, unwrap_order
from privsql.engine.sqlfiles import column
from privsql.errors import EngineError, GuaranteeError, UsageError
from privsql.keyed_random import seed_key
from privsql.source.table import labels_of
from support.commands import manifest, run, warehouse
from support.loops import each
from support.tampering import changed, not_verified, stating

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LEVELS = "CREATE TYPE level AS ENUM ('low', 'mid', 'high', 'critical')"
STATES = "CREATE TYPE state AS ENUM ('none', 'flu', 'cold', 'HIV', 'unheard')"
ROWS = """CREATE TABLE t AS SELECT i % 30 AS age, ['low', 'mid', 'high'][1 + (i * 7) % 3]::level AS level,
    ['low', 'high'][1 + (i * 5) % 2]::level AS other, ['none', 'flu', 'cold', 'HIV'][1 + (i // 30) % 4]::state AS state,
    CASE WHEN i % 2 = 0 THEN 'Bob' ELSE 'bob' END AS name FROM range(1200) t(i)"""
COLLATED = "ALTER TABLE t ALTER name TYPE VARCHAR COLLATE NOCASE"
ASKED: dict[str, dict[str, Any]] = {
    "bucketize": {"kind": "bucketize", "threshold": "1/2"},
    "randomize": {"kind": "randomize", "rho1": "3/10", "rho2": "7/10"},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with ENUM columns, two of which are of one type, and a place for its releases."""
    folder = tmp_path_factory.mktemp("orders")
    warehouse(folder / "source.duckdb", LEVELS, STATES, ROWS, COLLATED)
    return folder


def made(place: Path, name: str = "bucketize") -> Path:
    """A release of it, made once."""
    release = place / f"{name}.duckdb"
    if not release.exists():
        api.publish(spec(place, name, ASKED[name]), key=seed_key(1))
    return release


def spec(folder: Path, name: str, mechanism: dict[str, Any]) -> api.Spec:
    """What is published of the table."""
    return api.build(
        {
            "source": {"database": str(folder / "source.duckdb"), "table": "t"},
            "columns": {"quasi_identifiers": ["age", "level", "other", "name"], "sensitive": "state"},
            "release": {"name": "t", "to": str(folder / f"{name}.duckdb")},
            "mechanism": mechanism,
            "ledger": {"off": True},
        }
    )


@pytest.fixture(scope="module")
def source(place: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """The table itself."""
    with duckdb.connect(str(place / "source.duckdb"), read_only=True) as db:
        yield db


@pytest.mark.slow
@each("sql", [
    "SELECT level, COUNT(*) AS n FROM t GROUP BY level ORDER BY level DESC",
    "SELECT level, other, COUNT(*) AS n FROM t GROUP BY ALL ORDER BY ALL",
    "SELECT level, COUNT(*) AS n FROM t GROUP BY ROLLUP (level) ORDER BY level NULLS LAST",
    "SELECT age, MIN(level) AS a, MAX(level) AS b, COUNT(DISTINCT level) AS c FROM t GROUP BY age ORDER BY age",
    "SELECT age, MAX(level) AS m FROM t WHERE age < 9 GROUP BY age ORDER BY m, age DESC",
    "SELECT COUNT(*) AS n FROM t WHERE level < other",
    "SELECT COUNT(*) AS n FROM t WHERE level < 'mid' AND level <> 'critical' AND level IS NOT NULL",
    "SELECT level, COUNT(*) AS n FROM t WHERE level IN ('low', 'high', 'x') GROUP BY 1 HAVING level > 'a' ORDER BY 1",
    "SELECT greatest(level, other) AS g, COUNT(*) AS n FROM t GROUP BY g ORDER BY g",
    "SELECT upper(level) || '!' AS u, COUNT(*) FILTER (WHERE other = level) AS n FROM t GROUP BY u ORDER BY u DESC",
    "SELECT CASE level WHEN 'low' THEN 1 ELSE 2 END AS c, MEDIAN(age) AS m FROM t GROUP BY c ORDER BY c",
    "WITH s AS (SELECT level, COUNT(*) AS n FROM t GROUP BY level) SELECT level, n FROM s ORDER BY level",
])  # fmt: skip
@each("name", ASKED, few=1)
def test_what_is_exact_is_as_in_the_source(place: Path, source: duckdb.DuckDBPyConnection, name: str, sql: str) -> None:
    """Rows, and their order."""
    with api.open(made(place, name)) as release:
        answer = release.query(sql)
    figures = {one.at for one in answer.figures}
    kept = [k for k in range(len(answer.columns)) if k in figures or all(not at < k < at + 4 for at in figures)]
    assert [tuple(row[k] for k in kept) for row in answer.rows] == source.execute(sql).fetchall()


@pytest.mark.slow
@each("name", ASKED, few=1)
def test_sensitive_values_are_sorted_by_their_type(place: Path, name: str) -> None:
    """Alone and beside a quasi-identifier."""
    with api.open(made(place, name)) as release:
        rows = release.query("SELECT state, level, COUNT(*) AS n FROM t GROUP BY ALL ORDER BY state, level DESC").rows
    states, levels = ["none", "flu", "cold", "HIV"], ["high", "mid", "low"]
    assert [row[:2] for row in rows] == [(state, level) for state in states for level in levels]


@pytest.mark.slow
@each("name", ASKED, few=1)
def test_labels_that_nobody_has_are_named_nowhere(place: Path, name: str) -> None:
    """Columns of one type share the labels that any of them has."""
    release = made(place, name)
    held = ["low", "mid", "high"]
    assert manifest(release)["orders"] == {"level": held, "other": held, "state": ["none", "flu", "cold", "HIV"]}
    content = release.read_bytes()
    assert b"critical" not in content
    assert b"unheard" not in content
    assert api.verify(release, spec(place, name, ASKED[name])).ok


@pytest.mark.slow
@each("change", [
    lambda orders: orders | {"level": ["low", "mid", "high", "critical"]},
    lambda orders: orders | {"state": ["none", "flu", "cold"]},
    lambda orders: orders | {"state": ["none", "flu", "cold", "HIV", "HIV"]},
    lambda orders: orders | {"age": ["1"]},
    lambda orders: orders | {"nowhere": []},
])  # fmt: skip
def test_orders_of_other_labels_are_refused(place: Path, tmp_path: Path, change: Any) -> None:
    """Whatever reads the release: a label more, one that is missing or stands twice, a column that is no text."""
    other = changed(made(place), tmp_path, stating("orders", change))
    not_verified(other)
    with pytest.raises((GuaranteeError, EngineError)):
        api.open(other)


@pytest.mark.slow
def test_another_order_is_found_beside_the_source(place: Path, tmp_path: Path) -> None:
    """A release alone can't tell."""
    other = changed(made(place), tmp_path, stating("orders", lambda orders: orders | {
        "state": ["flu", "none", "cold", "HIV"]
    }))  # fmt: skip
    assert api.verify(other).ok
    found = api.verify(other, spec(place, "bucketize", ASKED["bucketize"]))
    assert [line for one in found.checks for line in one.offending] == ["orders: state"]


@pytest.mark.slow
def test_an_analyst_casts_to_no_type_of_labels(place: Path) -> None:
    """As before; and the message says what was written."""
    with api.open(made(place)) as release:
        with pytest.raises(UsageError, match="columns can be cast to numbers"):
            release.query("SELECT COUNT(*) FROM t WHERE CAST(name AS ENUM('Bob', 'bob')) < 'x'")
        with pytest.raises(UsageError, match=r"SUM\(level\)|sum"):
            release.query("SELECT SUM(level) FROM t")


@pytest.mark.slow
def test_a_collation_that_is_not_kept_is_said(place: Path, tmp_path: Path) -> None:
    """Of the column that has one."""
    asked = tmp_path / "asked.toml"
    asked.write_text(
        f"[source]\ndatabase = '{place / 'source.duckdb'}'\ntable = 't'\n"
        "[columns]\nquasi_identifiers = ['age', 'name']\nsensitive = 'state'\n"
        "[release]\nname = 't'\nto = 'r.duckdb'\n[mechanism]\nkind = 'bucketize'\nthreshold = '1/2'\n"
        "[ledger]\noff = true\n",
        encoding="utf-8",
    )
    warnings = run("publish", asked, "--seed", 1, "--json").json["warnings"]
    (said,) = (one for one in warnings if "collation" in one)
    assert said.startswith("column 'name' is compared by the collation NOCASE in the source")


def test_labels_and_their_types() -> None:
    """As the engine writes them, with quotes, and what is left alone."""
    assert labels_of("ENUM('low', 'it''s', 'a, b')") == ("low", "it's", "a, b")
    tree = exp.select(column("a"), column("b")).from_("t")
    assert in_order(tree.copy(), {}) == tree
    found = in_order(tree.copy(), {"a": ["x"]}).expressions
    assert [unwrap_order(one) for one in found] == [column("a"), column("b")]
    assert found[0] != column("a")
