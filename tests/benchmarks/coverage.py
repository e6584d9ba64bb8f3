"""Coverage of the intervals of releases of the real tables, by kind of question and by band of the true answer.

The kinds are those of ``asking``. Exact and certain answers are left out; what has bounds at a confidence but no
standard error stands by itself (``bounds``), it is to cover at least as often. The band of a sum, a mean or a share is
that of the number of records behind it. Of the band below 1, of nobody, little can be asked: whatever begins at 0
covers.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow.parquet as pq

import privsql
from privsql.keyed_random import seed_key
from tests.benchmarks import accuracy, asking

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.benchmarks.asking import Asker, Question

BANDS = (0, 1, 10, 50, 200, 1000, 5000, np.inf)
NONE = (0.0, 0.0, 0.0, 0.0)  # an answer that is not there
TABLE = ("age", "sex", "education", "marital", "race", "work_class", "birthplace")
RELEASES: list[tuple[str, str, dict[str, Any]]] = [
    ("acs_occ", "occupation", {"threshold": "8*f + 0.02", "algorithm": "two-size"}),
    ("acs_occ", "occupation", {"threshold": "8*f + 0.02", "algorithm": "informative"}),
    ("acs_edu", "education", {"threshold": "8*f + 0.02", "algorithm": "two-size"}),
    ("acs_occ", "occupation", {"kind": "randomize", "algorithm": "pp", "rho1": "1/10", "rho2": "1/3"}),
    ("acs_occ", "occupation", {"kind": "randomize", "algorithm": "up", "rho1": "1/10", "rho2": "1/3"}),
    ("acs_occ", "occupation", {"kind": "contingency", "epsilon": "1"}),
    ("acs_edu", "education_detail", {"kind": "contingency", "epsilon": "1/5"}),
    ("msnbc", "pages", {"kind": "setvalued", "epsilon": "1"}),
    ("msnbc", "pages", {"kind": "setvalued", "epsilon": "1/5"}),
]


@dataclass
class Found:
    """By kind: number of the question, records behind the true answer, truth, estimate, error, low, high.

    An error of 0 is that of bounds without one.
    """

    rows: dict[str, list[tuple[float, ...]]] = field(default_factory=lambda: defaultdict(list))

    def bands(self) -> Iterator[list[object]]:
        """Kind, from, to, answers, coverage, root mean square of z, relative width; of all kinds first."""
        parts = {"all": [row for rows in self.rows.values() for row in rows], **self.rows}
        for kind, rows in parts.items():
            found = np.array(rows)
            for low, high in pairwise(BANDS):
                part = found[(found[:, 1] >= low) & (found[:, 1] < high)] if len(found) else found
                if len(part):
                    yield [kind, low, high, len(part), *_figures(part)]


def _figures(part: NDArray[np.float64]) -> list[float]:
    true, estimate, error, low, high = part.T[2:]
    covered = (low <= true + 1e-9) & (true <= high + 1e-9)
    z = (estimate - true)[error > 0] / error[error > 0]
    spread = float(np.sqrt((z**2).mean())) if len(z) else float("nan")
    return [float(covered.mean()), spread, float(np.mean((high - low) / np.maximum(true, 1)))]


def answered(
    release: privsql.Release, source: duckdb.DuckDBPyConnection, question: Question
) -> list[tuple[bool, tuple[float, ...]]]:
    """Whether it has bounds alone, and records, truth, estimate, error, low, high of every row that has an interval."""
    width = len(question.groups.split(", ")) if question.groups else 0
    true = source.execute(question.sql(f"{question.records} AS records")).fetchall()
    truth = {row[:width]: row[width:] for row in true}
    answer = release.query(question.sql())
    (one,) = answer.figures
    if one.rests_on != "interval":
        return []
    found = []
    for row in answer.rows:
        value, records = truth.pop(tuple(row[:width]), (0, 0))
        estimate, error, low, high = one.read_row(row)
        if value is None or (question.kind in ("avg", "share") and not records and not value):
            continue  # nobody to be averaged
        if estimate is None or low is None or high is None:
            found.append((False, (float(records), float(value), *NONE)))
        elif high > low:
            found.append((not error, (float(records), float(value), *map(float, (estimate, error or 0.0, low, high)))))
    gone = [(float(records), float(value)) for value, records in truth.values() if records]
    return [*found, *((False, (*row, *NONE)) for row in gone)]


@dataclass(frozen=True)
class Trial:
    """A release of a real table, and what asks about it."""

    spec: privsql.Spec
    asker: Asker

    def measured(self, questions: int, keys: Iterable[int]) -> Found:
        """So many questions, of all kinds alike, to as many releases as there are keys."""
        found, keys = Found(), list(keys)
        each = max(1, questions // len(self.asker.kinds) // len(keys))
        with duckdb.connect() as source:
            source.execute(f"CREATE TABLE r AS FROM '{self.spec.source.file}'")
            for key in keys:
                privsql.publish(self.spec, key=seed_key(key), replace=True, nobody_has_it=True)
                with privsql.open(self.spec.target) as release:
                    for kind in self.asker.kinds:
                        for number in range(each):
                            for bounds, row in answered(release, source, self.asker.question(kind)):
                                found.rows[f"{kind}, bounds" if bounds else kind].append((float(number), *row))
        return found


def trial(data: Path, sensitive: str, mechanism: dict[str, Any], folder: Path, key: int) -> Trial:
    """Of a table, published in a folder."""
    kind = mechanism.get("kind")
    if kind == "setvalued":
        return _of_sets(data, sensitive, mechanism, folder, key)
    if kind == "contingency":
        return _of_categories(data, sensitive, mechanism, folder, key)
    names = [name for name in TABLE if name != sensitive]
    source, columns = accuracy.numbered(data, names, sensitive, folder)
    own = columns.pop("sensitive")
    return Trial(accuracy.specification(folder, source, names, mechanism), asking.BesideSensitive(key, columns, own))


def _of_categories(data: Path, last: str, mechanism: dict[str, Any], folder: Path, key: int) -> Trial:
    """Of columns with the values that they have, which are taken to be public."""
    source, columns = accuracy.numbered(data, [name for name in TABLE if name != last], last, folder)
    domains = {name: np.unique(values).tolist() for name, values in columns.items()}
    spec = _specification(folder, source, {"categories": list(columns)}, mechanism | {"domains": domains})
    return Trial(spec, asking.Categories(key, columns))


def _of_sets(data: Path, column: str, mechanism: dict[str, Any], folder: Path, key: int) -> Trial:
    """Of lists of items, which are taken to be public."""
    lists = pq.read_table(data)[column].combine_chunks()
    items = lists.flatten().to_numpy().astype(np.int64)
    starts = np.concatenate(([0], np.cumsum(lists.value_lengths().to_numpy())))
    spec = _specification(folder, data, {"items": column}, mechanism | {"universe": np.unique(items).tolist()})
    return Trial(spec, asking.ItemSets(key, column, items, starts))


def _specification(folder: Path, source: Path, columns: dict[str, Any], mechanism: dict[str, Any]) -> privsql.Spec:
    return privsql.build(
        {
            "source": {"file": str(source)},
            "columns": columns,
            "release": {"name": "r", "to": str(folder / "r.duckdb")},
            "mechanism": mechanism,
            "ledger": {"off": True},
        }
    )
