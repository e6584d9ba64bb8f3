"""Coverage of the intervals of releases of the real tables, by kind of question and by band of the true answer.

Kinds: ``single`` (1 to 3 columns and the sensitive one take one value each), ``several`` (each one of several),
``ranges`` (BETWEEN on both sides), ``by columns`` (GROUP BY one or two quasi-identifiers, one sensitive value or
range), ``by values`` (GROUP BY the sensitive column, or bands of it), ``sum`` and ``avg`` of a quasi-identifier and
``share`` (100.0 * COUNT(*) FILTER (..) / COUNT(*), by a column). Exact and certain answers are left out. The band of a
sum, a mean or a share is that of the number of records behind it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import duckdb
import numpy as np

import privsql
from privsql.noise import seed_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

BANDS = (0, 1, 10, 50, 200, 1000, 5000, np.inf)
KINDS = ("single", "several", "ranges", "by columns", "by values", "sum", "avg", "share")
SUMMED = "age"
LEAST = 200  # records that a condition selects at least
RELEASES: list[tuple[str, str, dict[str, object]]] = [
    ("acs_occ", "occupation", {"threshold": "8*f + 0.02", "algorithm": "two-size"}),
    ("acs_occ", "occupation", {"threshold": "8*f + 0.02", "algorithm": "informative"}),
    ("acs_edu", "education", {"threshold": "8*f + 0.02", "algorithm": "two-size"}),
    ("acs_occ", "occupation", {"kind": "randomize", "algorithm": "pp", "rho1": "1/10", "rho2": "1/3"}),
    ("acs_occ", "occupation", {"kind": "randomize", "algorithm": "up", "rho1": "1/10", "rho2": "1/3"}),
    ("acs_occ", "income", {"kind": "permute", "k": 5, "e": 5000}),
    ("acs_occ", "income", {"kind": "permute", "k": 10, "e": 20000}),
]


@dataclass(frozen=True)
class Question:
    """A query; ``records``: an aggregate function that counts those behind its figure."""

    kind: str
    groups: str
    figure: str
    where: str
    records: str = "COUNT(*)"

    def sql(self, *more: str) -> str:
        """As SQL; ``more`` is selected besides."""
        groups = [self.groups] if self.groups else []
        last = f" GROUP BY {self.groups}" if groups else ""
        return f"SELECT {', '.join([*groups, f'{self.figure} AS x', *more])} FROM r WHERE {self.where}{last}"


@dataclass
class Found:
    """By kind: number of the question, records behind the true answer, truth, estimate, error, low, high."""

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
    return [float(covered.mean()), float(np.sqrt((z**2).mean())), float(np.mean((high - low) / np.maximum(true, 1)))]


class Asker:
    """Questions at random; ``values`` of the columns (n,) each, ``sensitive`` (n,), all whole numbers."""

    def __init__(self, seed: int, columns: dict[str, NDArray[np.int64]], sensitive: NDArray[np.int64]) -> None:
        self._rng, self._columns, self._sensitive = np.random.default_rng(seed), columns, sensitive
        self._sorted = np.sort(sensitive)
        self._many = len(np.unique(sensitive)) > 1000
        self._names = list(columns)

    def question(self, kind: str) -> Question:
        """One of a kind."""
        own = self._where(spread=kind in ("several", "ranges"))
        if kind in ("single", "several", "ranges"):
            asked = {"single": self._value, "several": self._values, "ranges": self._range}[kind]()
            return Question(kind, "", "COUNT(*)", f"{own} AND {asked}")
        asked = self._range() if self._many or self._rng.random() < 0.5 else self._value()
        if kind == "by columns":
            names = [name for name in self._names if name != "birthplace"]
            chosen = self._rng.choice(names, int(self._rng.integers(1, 3)), replace=False).tolist()
            return Question(kind, ", ".join(chosen), "COUNT(*)", asked)
        if kind == "by values":
            band = int(self._rng.choice([5_000, 10_000, 20_000])) if self._many else 1
            return Question(kind, f"sensitive // {band}" if self._many else "sensitive", "COUNT(*)", own)
        if kind == "share":
            group = str(self._rng.choice([name for name in self._names if name not in ("birthplace", "age")]))
            count = f"COUNT(*) FILTER (WHERE {asked})"
            return Question(kind, group, f"100.0 * {count} / COUNT(*)", own, count)
        return Question(kind, "", f"{kind.upper()}({SUMMED})", f"{own} AND {asked}")

    def _where(self, *, spread: bool) -> str:
        """Equality on 1 to 3 columns with the values of a random record, or several values, or runs of them."""
        while True:
            row = int(self._rng.integers(len(self._sensitive)))
            number = int(self._rng.integers(1, 4))
            chosen = self._rng.choice(self._names, number, replace=False).tolist()
            parts, members = [], np.ones(len(self._sensitive), dtype=bool)
            for name in chosen:
                column = self._columns[name]
                low = high = int(column[row])
                if spread:
                    low, high = sorted((low, int(column[int(self._rng.integers(len(column)))])))
                members &= (column >= low) & (column <= high)
                parts.append(f"{name} BETWEEN {low} AND {high}" if spread else f"{name} = {low}")
            if members.sum() >= LEAST:
                return " AND ".join(parts)

    def _value(self) -> str:
        return f"sensitive = {int(self._rng.choice(self._sensitive))}"

    def _values(self) -> str:
        number = int(self._rng.integers(2, 7))
        chosen = sorted({int(value) for value in self._rng.choice(self._sensitive, number)})
        return f"sensitive IN ({', '.join(map(str, chosen))})"

    def _range(self) -> str:
        share = float(np.exp(self._rng.uniform(math.log(0.01), math.log(0.5))))
        first = self._rng.uniform(0, 1 - share)
        low, high = (int(self._sorted[int(end * (len(self._sorted) - 1))]) for end in (first, first + share))
        return f"sensitive BETWEEN {low} AND {high}"


def answered(
    release: privsql.Release, source: duckdb.DuckDBPyConnection, question: Question
) -> list[tuple[float, ...]]:
    """Records, truth, estimate, error, low, high of every row that has an interval, and of those that are not there."""
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
        estimate, error, low, high = one.of(row)
        if value is None or (question.kind in ("avg", "share") and not records and not value):
            continue  # nobody to be averaged
        if estimate is None or low is None or high is None:
            found.append((float(records), float(value), 0.0, 0.0, 0.0, 0.0))
        elif high > low:
            found.append((float(records), float(value), *map(float, (estimate, error or 0.0, low, high))))
    return found


def measured(
    spec: privsql.Spec,
    columns: dict[str, NDArray[np.int64]],
    sensitive: NDArray[np.int64],
    questions: int,
    key: int,
) -> Found:
    """Of a release, by a key, so many questions, of all kinds alike."""
    privsql.publish(spec, key=seed_key(key), replace=True)
    asker, found = Asker(key, columns, sensitive), Found()
    with privsql.open(spec.target) as release, duckdb.connect() as source:
        source.execute(f"CREATE TABLE r AS FROM '{spec.source.file}'")
        for kind in KINDS:
            for number in range(max(1, questions // len(KINDS))):
                rows = answered(release, source, asker.question(kind))
                found.rows[kind] += [(float(number), *row) for row in rows]
    return found
