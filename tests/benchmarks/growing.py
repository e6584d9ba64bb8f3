"""Tables that grow, (k,e)-anonymity: each algorithm's releases, and the time of the search and of whole releases."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

import privsql
from privsql.keyed_random import seed_key
from privsql.mechanisms.permute.grouping import make_axis
from privsql.mechanisms.permute.incremental import GroupingHistory, arrange_records, group_release
from tests.support.breaches import find_closure_breaches

if TYPE_CHECKING:
    from pathlib import Path

ALGORITHMS = ("nested", "exact", "reapply-last")
QI = ["age", "sex", "education", "marital", "race", "work_class"]


def slices(data: Path, place: Path, number: int = 10) -> list[list[object]]:
    """Income of acs_occ in growing slices, k = 5, e = 5,000: one row per release and algorithm.

    ``reapply-all`` is left out: it finds what ``exact`` finds, and compares everything with everything.
    """
    source = place / "office.duckdb"
    _run(source, f"CREATE TABLE people AS FROM read_parquet('{data}') LIMIT 0")
    rows: list[list[object]] = []
    for i in range(number):
        new = f"FROM read_parquet('{data}') WHERE hash(person_id) % {number} = {i}"
        _run(source, f"INSERT INTO people {new}")
        for algorithm in ALGORITHMS:
            begin = time.perf_counter()
            done = privsql.publish(_specification(source, place, algorithm, i), key=seed_key(1))
            facts, took = done.facts, time.perf_counter() - begin
            figures = [facts["groups"], facts["error"], facts["mean_width"], facts["held_back"], took]
            rows.append([i, algorithm, facts["published"], *figures, _exposed(place, algorithm, i)])
    return rows


def _run(source: Path, sql: str) -> None:
    with duckdb.connect(str(source)) as db:
        db.execute(sql)


def _specification(source: Path, place: Path, algorithm: str, number: int) -> Any:
    return privsql.build(
        {
            "source": {"database": str(source), "table": "people", "id": "person_id", "name": algorithm},
            "columns": {"quasi_identifiers": QI, "sensitive": "income"},
            "release": {"name": "pay", "to": str(place / f"{algorithm}{number}.duckdb")},
            "mechanism": {"kind": "permute", "algorithm": algorithm, "k": 5, "e": 5000},
            "ledger": {"database": str(place / f"{algorithm}.ledger")},
        }
    )


def _exposed(place: Path, algorithm: str, number: int) -> int:
    """Records in atoms of all releases so far that are not fine, from the ledger."""
    with duckdb.connect(str(place / f"{algorithm}.ledger"), read_only=True) as db:
        joins = " ".join(f"LEFT JOIN (FROM subjects WHERE number = {i + 1}) g{i} USING (id)" for i in range(number + 1))
        columns = ", ".join(f"coalesce(g{i}.bid, -1)" for i in range(number + 1))
        known = "SELECT id, min(value)::BIGINT AS value FROM subjects GROUP BY id"
        table = np.array(db.execute(f"SELECT k.value, {columns} FROM ({known}) k {joins}").fetchall(), dtype=np.int64)
    units, ranks = np.unique(table[:, 0], return_inverse=True)
    return sum(map(len, find_closure_breaches(make_axis(units.tolist(), 5, 5000), ranks, table[:, 1:].T)))


def searches(records: int = 1_000_000, releases: int = 20) -> list[list[object]]:
    """Seconds of the search alone against so many earlier releases, records arriving evenly."""
    rng = np.random.default_rng(1)
    rows: list[list[object]] = []
    shapes = {
        "incomes": np.round(rng.lognormal(10, 1, records)),
        "all different": rng.permutation(10 * records)[:records],
    }
    for name, values in shapes.items():
        units, ranks = np.unique(values.astype(np.int64), return_inverse=True)
        scale, births = make_axis(units.tolist(), 5, 5000), rng.integers(0, releases + 1, records)
        for algorithm in ("nested", "exact"):
            groups = np.zeros((0, records), dtype=np.int64)
            for number in range(releases + 1):
                here = np.flatnonzero(births <= number)
                begin = time.perf_counter()
                order = here[arrange_records(ranks[here], groups[:, here])]
                own, codes = np.unique(ranks[order], return_inverse=True)
                part = make_axis([scale.units[rank] for rank in own.tolist()], 5, 5000)
                found = group_release(GroupingHistory(part, codes, groups[:, order]), algorithm)
                took = time.perf_counter() - begin
                last = np.full(records, -1)
                last[order] = found
                groups = np.vstack([groups, last])
            rows.append([name, len(units), records, releases, algorithm, int(found.max()) + 1, took])
    return rows


def against_copy(place: Path, records: int) -> list[list[object]]:
    """Seconds of a whole first and second release (a tenth of the records new), beside a copy of the table."""
    source = place / "office.duckdb"
    columns = ", ".join(
        f"(hash(i, {j}) % {n})::UTINYINT AS {name}"
        for j, (name, n) in enumerate(zip(QI, (80, 2, 14, 5, 9, 9), strict=True))
    )
    income = "exp(8 + (hash(i, 7) % 1000 + hash(i, 8) % 1000 + hash(i, 9) % 1000) / 600)::INTEGER AS income"
    rows: list[list[object]] = []
    for number, (first, last) in enumerate(((0, records), (records, records + records // 10))):
        made = f"SELECT i AS person_id, {columns}, {income} FROM range({first}, {last}) t(i)"
        _run(source, f"CREATE TABLE people AS {made}" if not number else f"INSERT INTO people {made}")
        begin = time.perf_counter()
        _run(source, "CREATE TABLE copy AS FROM people")
        copied = time.perf_counter() - begin
        _run(source, "DROP TABLE copy")
        begin = time.perf_counter()
        done = privsql.publish(_specification(source, place, "nested", number), key=seed_key(1))
        took = time.perf_counter() - begin
        rows.append([number, last, done.facts["groups"], copied, took, took / copied])
    return rows
