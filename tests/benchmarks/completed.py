"""Answers by completed tables: coverage of their intervals, and time beside the raw query.

Samples, made tables and questions have fixed seeds; releases differ by key.
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

import privsql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.benchmarks.modelled_coverage import WriteTable

FEWEST, MOST_GROUPS = 50, 80  # records of a group that is judged, and values of a column by which is grouped
PER_VALUE = {"median": "MEDIAN({x})", "avg": "AVG({x})", "stddev": "STDDEV({x})", "sum": "SUM({x})"}
PER_GROUP = {
    "avg": "AVG({s})", "sum": "SUM({s})", "distinct": "COUNT(DISTINCT {s})", "corr": "CORR({s}, {x})",
    "slope": "REGR_SLOPE({s}, {x})", "median": "MEDIAN({s})", "share": "COUNT(*) FILTER ({s} = {v}) / COUNT(*)",
    "stddev": "STDDEV({s})",
}  # fmt: skip
MOMENTS = ("avg", "sum", "corr", "slope", "stddev")
SPEED = {
    "count": "SELECT {g}, COUNT(*) FROM t WHERE {s} = {v} GROUP BY {g}",
    "median": "SELECT {s}, MEDIAN({x}) FROM t GROUP BY {s}",
    "correlation": "SELECT CORR({s}, {x}) FROM t",
    "ratio of subqueries": "SELECT a.n / b.n AS r FROM (SELECT COUNT(*) AS n FROM t WHERE {s} = {v}) a, "
    "(SELECT COUNT(DISTINCT {s}) AS n FROM t) b",
}


def list_questions(
    db: duckdb.DuckDBPyConnection, names: Sequence[str], sensitive: str
) -> Iterator[tuple[str, list[str]]]:
    """Yield statements by one group each, and the kinds of their figures."""
    values = [row[0] for row in db.sql(f"SELECT {sensitive} FROM t GROUP BY ALL ORDER BY count(*) DESC, 1").fetchall()]
    for at, x in enumerate(names):
        figures = ", ".join(f"{made.format(x=x)} AS f{i}" for i, made in enumerate(PER_VALUE.values()))
        yield f"SELECT {sensitive} AS g, {figures} FROM t GROUP BY {sensitive}", list(PER_VALUE)
        for g in names:
            ((number,),) = db.sql(f"SELECT count(DISTINCT {g}) FROM t").fetchall()
            if g != x and number <= MOST_GROUPS:
                v = values[at % len(values)]
                made = [one.format(s=sensitive, x=x, v=v) for one in PER_GROUP.values()]
                figures = ", ".join(f"{one} AS f{i}" for i, one in enumerate(made))
                yield f"SELECT {g} AS g, {figures} FROM t GROUP BY {g}", list(PER_GROUP)


def publish_and_fit(table: WriteTable, rule: str, place: Path, key: int) -> tuple[Path, list[str], str]:
    """Publish a table and fit a model; return the source's file and columns."""
    os.environ["PRIVSQL_CACHE"] = str(place / "cache")
    file, names, sensitive = table(place)
    more: Any = {"seed": key, "allow_useless": True, "set": {"ledger": {"off": True}, "release": {"name": "t"}}}
    privsql.publish(file, to=place / "t.duckdb", qi=names, sensitive=sensitive, threshold=rule, **more)
    privsql.fit(place / "t.duckdb")
    return file, names, sensitive


def judge(table: WriteTable, rule: str, keys: range) -> list[tuple[str, float, bool]]:
    """Return kind, relative error and whether the interval holds, of every figure that has one."""
    found = []
    for key in keys:
        with tempfile.TemporaryDirectory() as folder, duckdb.connect() as db:
            file, names, sensitive = publish_and_fit(table, rule, Path(folder), key)
            db.execute(f"CREATE TABLE t AS FROM '{file}'")
            with privsql.open(Path(folder) / "t.duckdb") as release:
                for sql, kinds in list_questions(db, names, sensitive):
                    group = sql.removeprefix("SELECT ").split(" AS g", 1)[0]
                    sizes = dict(db.sql(f"SELECT {group}, count(*) FROM t GROUP BY {group}").fetchall())
                    true = {row[0]: row[1:] for row in db.sql(sql).fetchall()}
                    answer = release.query(sql)
                    for row in answer.rows:
                        for one, kind in zip(answer.figures, kinds, strict=True):
                            estimate, _, low, high = one.read_row(row)
                            meant = true.get(row[0], (None,) * len(kinds))[kinds.index(kind)]
                            if None in (meant, low) or sizes[row[0]] < FEWEST or math.isnan(meant):
                                continue
                            error = abs(estimate - float(meant)) / max(abs(float(meant)), 1e-9)
                            found.append((kind, error, low - 1e-9 <= meant <= high + 1e-9))
    return found


def show_coverage(found: Sequence[tuple[str, float, bool]]) -> list[object]:
    """Return the coverage of each kind in percent, of medians, shares and COUNT(DISTINCT) together, and of moments."""
    number = Counter(kind for kind, *_ in found)
    held = Counter(kind for kind, _, inside in found if inside)
    kinds = [f"{100 * held[kind] / number[kind]:.0f}" if number[kind] else "" for kind in PER_GROUP]
    pooled: list[object] = []
    for moments in (False, True):
        chosen = [kind for kind in number if (kind in MOMENTS) == moments]
        pooled.append(f"{100 * sum(held[one] for one in chosen) / max(sum(number[one] for one in chosen), 1):.1f}")
    return [*kinds, *pooled]


def measure_speed(table: WriteTable, rule: str) -> Iterator[list[object]]:
    """Yield statement, milliseconds of the raw query and of the answer, and 20 raw queries with what may be added."""
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as db:
        file, names, sensitive = publish_and_fit(table, rule, Path(folder), 1)
        db.execute(f"CREATE TABLE t AS FROM '{file}'")
        ((value, _),) = db.sql(f"SELECT {sensitive}, count(*) FROM t GROUP BY 1 ORDER BY 2 DESC LIMIT 1").fetchall()
        with privsql.open(Path(folder) / "t.duckdb") as release:
            for kind, made in SPEED.items():
                sql = made.format(s=sensitive, v=value, g=names[1], x=names[0])
                raw = _milliseconds(lambda sql=sql: db.execute(sql).fetchall())
                asked = _milliseconds(lambda sql=sql: release.query(sql))
                yield [kind, raw, asked, 20 * raw + (10 if kind == "count" else 60)]


def _milliseconds(work: Callable[[], object], runs: int = 9) -> float:
    work()
    found = []
    for _ in range(runs):
        begun = time.perf_counter()
        work()
        found.append(1_000 * (time.perf_counter() - begun))
    return statistics.median(found)
