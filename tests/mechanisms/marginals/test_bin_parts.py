"""Ranges inside bins: shares by the values or the length of what overlaps, and bounds that hold the truth."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
import sqlglot

import privsql
from privsql.engine.sqlfiles import Field
from privsql.errors import UsageError
from privsql.mechanisms.marginals.questions import LITTLE, cut_bins, read_cuts

if TYPE_CHECKING:
    from collections.abc import Iterator

EDGES = tuple(map(Fraction, (0, 50, 100)))


def parts(kind: str, condition: str) -> list[tuple[Any, ...]]:
    cuts, _ = read_cuts(Field("x", kind), [sqlglot.parse_one(condition, dialect="duckdb")])
    return [(one.code, one.value, pytest.approx(one.share)) for one in cut_bins(kind, EDGES, cuts)]


@pytest.mark.parametrize(
    ("kind", "condition", "expected"),
    [
        ("INTEGER", "x < 10", [(0, "0", 0.2), (0, "10", 0.8)]),
        ("INTEGER", "x <= 10", [(0, "0", 0.22), (0, "11", 0.78)]),
        ("INTEGER", "10 > x", [(0, "0", 0.2), (0, "10", 0.8)]),
        ("INTEGER", "x BETWEEN 49 AND 50", [(0, "0", 0.98), (0, "49", 0.02), (1, "50", 0.02), (1, "51", 0.98)]),
        ("INTEGER", "x < 50 OR x >= 100 OR x <= 49 OR x < 0", []),
        ("INTEGER", "x IS NULL", []),
        ("DECIMAL(9,1)", "x <= 10", [(0, "0", 0.202), (0, "10.1", 0.798)]),
        ("DOUBLE", "x < 10", [(0, "5.0", 0.2), (0, "30.0", 0.8), (0, "10.0", LITTLE)]),
        ("DOUBLE", "x <= 0", [(0, "25.0", 1.0), (0, "0.0", LITTLE)]),
        ("DOUBLE", "x < 50 AND x >= 0", []),
    ],
)
def test_a_range_has_its_share_of_the_bin(kind: str, condition: str, expected: list[Any]) -> None:
    assert parts(kind, condition) == expected


@pytest.mark.parametrize(
    ("condition", "largest"),
    [
        ("x // 20 * 20 = 40", "x // 20 * 20"),
        ("floor((x + 1) / 50) < y", "FLOOR((x + 1) / 50)"),
        ("5 / x < 1", "x"),
        ("x % 2 = 0", "x"),
        ("x + y < 9", "x"),
    ],
)
def test_the_arithmetic_that_may_leave_bins_whole(condition: str, largest: str) -> None:
    _, (other,) = read_cuts(Field("x", "INTEGER"), [sqlglot.parse_one(condition, dialect="duckdb")])
    assert other.sql(dialect="duckdb").upper().replace(" ", "") == largest.upper().replace(" ", "")


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """A release of uniform columns with next to no noise, and its source."""
    with duckdb.connect() as db:
        db.execute(
            "CREATE TABLE r AS SELECT (i % 1000) / 10.0 AS x, CAST(i * 7 % 1000 AS INTEGER) AS k, "
            "i % 40 + 0.5 AS y, CASE WHEN i % 10 = 0 THEN NULL ELSE i % 2 END AS half FROM range(6000) t(i)"
        )
        db.execute("CREATE OR REPLACE TABLE r AS SELECT CAST(x AS DOUBLE) AS x, k, CAST(y AS DOUBLE) AS y, half FROM r")
        domains = {"x": {"bins": [0, 50, 100]}, "k": {"bins": [0, 500, 1000]}, "y": {"bins": [0, 5, 20, 40]}}
        spec = {
            "source": {"frame": db.sql("FROM r").to_arrow_table()},
            "columns": {"categories": ["x", "k", "y", "half"]},
            "release": {"name": "r", "to": str(tmp_path_factory.mktemp("bins") / "r.duckdb")},
            "ledger": {"off": True},
            "mechanism": {"kind": "contingency", "epsilon": 100, "domains": domains | {"half": [0, 1]}},
        }
        with privsql.open(privsql.publish(spec, seed=1)) as opened:
            yield opened, db


@pytest.mark.parametrize(
    ("condition", "off"),
    [
        ("x < 1.5", 5),
        ("x < 60", 10),
        ("x BETWEEN 40 AND 60", 20),
        ("NOT x > 99.5", 10),
        ("k BETWEEN 490 AND 509", 1),
        ("k <= 0", 1),
        ("k < 250 AND half = 1", 150),
        ("x < 25 AND y < 10", 60),
        ("x < 25 OR k < 250", 120),
        ("k // 500 * 500 = 500", 1),
        ("floor(x / 50) = 0", 1),
        ("x * 2 < 3", None),
        ("k % 2 = 0", None),
        ("x + k < 100", None),
        ("x <= 0", None),
        ("half IS NULL", 1),
        ("k < 0", 1),
    ],
)
def test_shares_are_near_the_truth_and_bounds_contain_it(release: Any, condition: str, off: float | None) -> None:
    opened, db = release
    ((truth,),) = db.sql(f"SELECT count(*) FROM r WHERE {condition}").fetchall()
    answer = opened.query(f"SELECT COUNT(*) FROM r WHERE {condition}")
    ((estimate, _, low, high),) = answer.rows
    assert low - 0.01 <= truth <= high + 0.01
    assert answer.rests_on != "exact"
    assert off is None or abs(estimate - truth) <= off


def test_groups_by_arithmetic_that_every_bin_meets_as_a_whole(release: Any) -> None:
    opened, _ = release
    rows = opened.query("SELECT k // 500 * 500 AS g, COUNT(*) FROM r GROUP BY g ORDER BY g").rows
    assert [row[0] for row in rows] == [0, 500, None]
    with pytest.raises(UsageError, match="in bins"):
        opened.query("SELECT k // 7 AS g, COUNT(*) FROM r GROUP BY g")
