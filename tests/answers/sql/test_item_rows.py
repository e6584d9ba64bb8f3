"""Questions about rows of (record, item): what they are translated to, the answers of DuckDB, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import privsql
from privsql.answers.sql.item_rows import ItemRows
from support.loops import each

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = ItemRows("basket", "good")
ITEMS = 12


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, duckdb.DuckDBPyConnection]]:
    """A release of baskets with a row for each good, nearly without noise, and the rows themselves."""
    folder: Path = tmp_path_factory.mktemp("rows")
    draw = np.random.default_rng(1)
    basket = np.repeat(np.arange(4000), draw.integers(1, 4, 4000))
    good = [f"g{int(one)}" for one in draw.integers(0, ITEMS, len(basket))]
    rows = pa.table({"basket": basket, "good": good}).group_by(["basket", "good"]).aggregate([])
    spec = {
        "columns": {"record": "basket", "item": "good"},
        "mechanism": {"kind": "setvalued", "epsilon": "100", "universe": [f"g{k}" for k in range(ITEMS)]},
        "release": {"name": "t", "to": str(folder / "t.duckdb")},
        "ledger": {"off": True},
    }
    privsql.publish(privsql.build(spec, source=rows), seed=1)
    with privsql.open(folder / "t.duckdb") as release, duckdb.connect() as db:
        db.register("t", rows)
        yield release, db


@each(
    "sql",
    [
        "SELECT COUNT(*) FROM t WHERE good = 'g1'",
        "SELECT COUNT(*) AS n FROM t AS x WHERE 'g1' = x.good",
        "SELECT COUNT(*) FROM t WHERE good IN ('g1', 'g2', 'g2')",
        "SELECT COUNT(*) FROM t WHERE good = 'g1' OR good IN ('g2', 'g3')",
        "SELECT COUNT(*) FROM t WHERE good = 'g1' AND good = 'g2'",
        "SELECT COUNT(DISTINCT basket) FROM t",
        "SELECT COUNT(DISTINCT basket) FROM t WHERE good = 'g4'",
        "SELECT COUNT(*) FILTER (WHERE good = 'g1') / COUNT(DISTINCT basket) FROM t",
        "SELECT COUNT(*) FILTER (WHERE good = 'g1'), COUNT(*) FILTER (WHERE good IN ('g2', 'g1')) FROM t",
        "SELECT good, COUNT(*) AS n FROM t GROUP BY good",
        "SELECT COUNT(DISTINCT basket) AS n, t.good AS item FROM t GROUP BY t.good",
        "SELECT good, COUNT(*) AS n FROM t WHERE good IN ('g7', 'g9') GROUP BY 1",
        "SELECT good AS item, COUNT(DISTINCT basket) AS n FROM t WHERE good = 'g7' GROUP BY item",
    ],
)
def test_rows_are_answered_as_duckdb_answers_them(shop: tuple[Any, duckdb.DuckDBPyConnection], sql: str) -> None:
    release, db = shop
    answer = release.query(sql)
    places = [at for at, name in enumerate(answer.columns) if not name.endswith(("std_error", "low", "high"))]
    found = {tuple(row[at] for at in places if isinstance(row[at], str)):
             [row[at] for at in places if not isinstance(row[at], str)] for row in answer.rows}  # fmt: skip
    right = {tuple(one for one in row if isinstance(one, str)): [one for one in row if not isinstance(one, str)]
             for row in db.execute(sql).fetchall()}  # fmt: skip
    assert found.keys() == right.keys()
    for key, figures in right.items():
        assert found[key] == pytest.approx(figures, abs=8)


def test_any_of_some_items_has_bounds(shop: tuple[Any, duckdb.DuckDBPyConnection]) -> None:
    release, db = shop
    sql = "SELECT COUNT(DISTINCT basket) FROM t WHERE good IN ('g1', 'g2')"
    ((right,),) = db.execute(sql).fetchall()
    ((estimate, _, low, high),) = release.query(sql).rows
    assert low <= right <= high
    assert estimate == pytest.approx(right, rel=0.05)


def test_the_most_frequent_items_come_first(shop: tuple[Any, duckdb.DuckDBPyConnection]) -> None:
    release, _ = shop
    found = release.query("SELECT good, COUNT(*) AS n FROM t GROUP BY good ORDER BY n DESC LIMIT 5").rows
    alone = release.query("SELECT unnest(good) AS item, COUNT(*) AS n FROM t GROUP BY item ORDER BY n DESC LIMIT 5")
    assert found == alone.rows
    assert [row[1] for row in found] == sorted((row[1] for row in found), reverse=True)


def test_all_rows_are_counted_by_record_and_that_is_said(shop: tuple[Any, duckdb.DuckDBPyConnection]) -> None:
    release, _ = shop
    answer = release.query("SELECT COUNT(*) FROM t")
    assert answer.rows[0][0] == pytest.approx(4000, abs=5)
    assert any("same basket" in one for one in answer.hints)
    assert not any("basket" in one for one in release.query("SELECT COUNT(*) FROM t WHERE good = 'g1'").hints)


def test_questions_about_sets_stay_as_they_are() -> None:
    for sql in (
        "SELECT COUNT(*) FROM t",
        "SELECT COUNT(*) FROM t WHERE list_contains(good, 'a') AND len(good) > 2",
        "SELECT unnest(good) AS item, COUNT(*) FROM t GROUP BY item",
        "SELECT u.item, COUNT(*) FROM t CROSS JOIN UNNEST(good) AS u(item) GROUP BY u.item",
    ):
        assert ROWS.translate(sql) == sql
    mixed = "SELECT COUNT(*) FROM t WHERE good = 'a' AND list_contains(good, 'b')"
    assert ROWS.translate(mixed).count("'b'") == 1


@each(
    "sql",
    [
        "SELECT COUNT(*) FROM t WHERE good <> 'g1'",
        "SELECT COUNT(*) FROM t WHERE good LIKE 'g%'",
        "SELECT COUNT(DISTINCT good) FROM t",
        "SELECT basket, COUNT(*) FROM t GROUP BY basket",
        "SELECT COUNT(*) FROM (SELECT basket FROM t WHERE good = 'g1' GROUP BY basket)",
        "SELECT good, COUNT(*) AS n FROM t GROUP BY good HAVING COUNT(*) > 3",
        "SELECT COUNT(*) FROM t WHERE basket = 7",
        "SELECT MAX(good) FROM t",
    ],
)
def test_other_questions_about_rows_are_refused_with_what_works(
    shop: tuple[Any, duckdb.DuckDBPyConnection], sql: str
) -> None:
    release, _ = shop
    with pytest.raises(privsql.UsageError, match=r"for rows of \(basket, good\); what works is good = 'a'"):
        release.query(sql)
    with pytest.raises(privsql.UsageError, match="'gin' is not in the universe"):
        release.query("SELECT good, COUNT(*) FROM t WHERE good = 'gin' GROUP BY good")


def test_a_source_of_lists_is_not_asked_by_rows(tmp_path: Path) -> None:
    table = pa.table({"goods": [["a", "b"], ["a"]] * 500})
    spec = {
        "columns": {"items": "goods"},
        "mechanism": {"kind": "setvalued", "epsilon": "1", "universe": ["a", "b"]},
        "release": {"name": "t", "to": str(tmp_path / "t.duckdb")},
        "ledger": {"off": True},
    }
    privsql.publish(privsql.build(spec, source=table), seed=1)
    with pytest.raises(privsql.UsageError, match="write list_contains"):
        privsql.query(tmp_path / "t.duckdb", "SELECT COUNT(*) FROM t WHERE goods = 'a'")
