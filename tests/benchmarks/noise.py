"""What noise alone answers: on every cell or set of the whole domain, or on every marginal of a few columns or items.

Nothing of it is published. A question that adds up K counts is answered by the truth and K Laplace variables, whose sum
is distributed as b (Gamma(K) - Gamma(K)); that is exact for every answer by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import comb, log, prod, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import sqlglot
from sqlglot import exp

from privsql.model.estimates import Estimate
from tests.benchmarks.answering import Said

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from privsql.mechanisms.views.item_sets import WeightedSets

WIDEST = {"every cell": None, "all marginals": 3, "every set": None, "all small sets": 4}  # columns or items
MANY = 8  # from which on a sum of Laplace variables is taken to be normal for its interval


@dataclass(frozen=True)
class Noise:
    """Laplace noise of scale ``b`` on every count."""

    b: float
    draw: np.random.Generator

    def of(self, truth: np.ndarray[Any, Any], counts: np.ndarray[Any, Any]) -> tuple[Any, Any]:
        """Estimates of sums of so many counts each, and half-widths of their 95 % intervals."""
        noisy = truth + self.b * (self.draw.gamma(counts) - self.draw.gamma(counts))
        few = np.minimum(log(20) * self.b * np.sqrt(counts), 1.96 * sqrt(2) * self.b * np.sqrt(counts) * 1.1)
        return noisy, np.where(counts >= MANY, 1.96 * sqrt(2) * self.b * np.sqrt(counts), few)


class Tables:
    """Answers SQL over a table whose every cell, or every marginal, has noise."""

    def __init__(self, ask: Callable[[str], list[Any]], name: str, columns: Sequence[str], how: str, epsilon: float):
        self._ask, self._name, self._widest = ask, name, WIDEST[how]
        self._values = {
            one: [row[0] for row in ask(f'SELECT DISTINCT "{one}" FROM {name} ORDER BY 1')] for one in columns
        }
        cliques = 1 if self._widest is None else sum(comb(len(columns), k) for k in range(1, self._widest + 1))
        self._noise, self._kept = Noise(cliques / epsilon, np.random.default_rng(1)), dict[str, int]()

    def answer(self, sql: str, _estimator: str) -> Said:
        """A count, or counts by groups, of those who meet a condition."""
        tree = sqlglot.parse_one(sql, dialect="duckdb")
        groups = [one.name for one in tree.expressions if isinstance(one, exp.Column)]
        rows, where = self._ask(sql), tree.args.get("where")
        cells = self._cells(where.this if where else None, groups)
        known = {tuple(row[:-1]): row[-1] for row in rows}
        keys = list(product(*(self._values[one] for one in groups)))
        truth = np.array([known.get(key, 0) for key in keys], dtype=float)
        noisy, width = self._noise.of(truth, np.full(len(keys), cells))
        return Said([(*key, value) for key, value in zip(keys, noisy.tolist(), strict=True)], [(w,) for w in width])

    def distance(self, columns: Sequence[str], records: int) -> float:
        """Expected total variation of a table by some columns, drawn once."""
        cells = prod(len(self._values[one]) for one in columns)
        noisy, _ = self._noise.of(np.zeros(cells), np.full(cells, self._cells(None, columns)))
        return float(np.abs(noisy).sum() / 2 / records)

    def _cells(self, condition: exp.Expression | None, groups: Sequence[str]) -> int:
        """How many noisy counts are added up for one group among those who meet a condition, a conjunction."""
        met = dict.fromkeys(groups, 1)
        parts = (
            [] if condition is None else list(condition.flatten()) if isinstance(condition, exp.And) else [condition]
        )
        for part in parts:
            column = next(part.find_all(exp.Column)).name
            text = part.sql(dialect="duckdb")
            if text not in self._kept:
                values = f'(SELECT DISTINCT "{column}" FROM {self._name})'
                self._kept[text] = self._ask(f"SELECT count(*) FROM {values} WHERE {text}")[0][0]
            met[column] = self._kept[text]
        columns = self._values if self._widest is None else met
        return prod(met.get(one, len(self._values[one])) for one in columns)


class Sets:
    """Answers questions for items, where every set that there can be, or each of up to four items, has noise."""

    estimators = ("reconstructed",)

    def __init__(self, true: WeightedSets, labels: tuple[str, ...], how: str, epsilon: float):
        self.item_labels, self._true, self._widest = labels, true, WIDEST[how]
        sets = 1 if self._widest is None else sum(comb(true.items, k) for k in range(1, self._widest + 1))
        self._noise = Noise(sets / epsilon, np.random.default_rng(1))

    def containing(self, codes: Sequence[int], _estimator: str, _confidence: float) -> Estimate:
        """Records that contain some items; nothing is known of more of them than were counted together."""
        if self._widest is not None and len(codes) > self._widest:
            return Estimate((), 0.0, None, None, None)
        counts = np.array([1.0 if self._widest is not None else 2.0 ** (self._true.items - len(codes))])
        truth = self._true.weights[self._true.sets_with_all(codes)].sum(keepdims=True)
        ((noisy,), (width,)) = (one.tolist() for one in self._noise.of(truth, counts))
        return Estimate((), noisy, None, max(noisy - width, 0.0), noisy + width)

    def list_frequent(self, top: int, _estimator: str) -> list[tuple[list[str], float]]:
        """None: no set is listed."""
        return []
