"""Chance taken through all its values, and observed counts against exact chances."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import cache
from math import factorial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import stats

from privsql.mechanisms.dp.joint_model import Model
from privsql.mechanisms.marginals import publish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pytest
    from numpy.typing import NDArray

    from privsql.mechanisms.dp.noisy_tables import NoisyTable

    Ints = NDArray[np.int64]

FALSE_ALARM = 1e-6  # of each statistical test; those on OpenDP's noise can't be seeded


class Enumeration:
    """Noise that is clamped to [0, most], a post-processing of the geometric mechanism, taken through all its values.

    ``runs`` repeats a program until every sequence of choices has been made once and gives each result's probability.
    Which empty partitions pass is asked of them one by one.
    """

    origin: Literal["opendp", "seed"] = "seed"

    def __init__(self, most: int) -> None:
        self.most = most
        self._path: list[list[int]] = []  # choice, number of choices
        self._at, self._chance = 0, 1.0

    def runs(self, program: Callable[[], Any]) -> Iterator[tuple[Any, float]]:
        while True:
            self._at, self._chance = 0, 1.0
            yield program(), self._chance
            while self._path and self._path[-1][0] + 1 == self._path[-1][1]:
                self._path.pop()
            if not self._path:
                return
            self._path[-1][0] += 1

    def _draw(self, chances: Sequence[float]) -> int:
        if self._at == len(self._path):
            self._path.append([0, len(chances)])
        chosen = self._path[self._at][0]
        self._at += 1
        self._chance *= chances[chosen]
        return chosen

    def _law(self, count: int, epsilon: Fraction) -> list[float]:
        p = math.exp(-epsilon)
        steps = [k - count for k in range(self.most)]
        below = [1 - p ** (j + 1) / (1 + p) if j >= 0 else p**-j / (1 + p) for j in steps]
        return np.diff([0.0, *below, 1.0]).tolist()

    def add_noise(self, counts: Ints, epsilon: Fraction) -> Ints:
        return np.array([self._draw(self._law(count, epsilon)) for count in counts.tolist()], dtype=np.int64)

    def count_passing(self, empty: Ints, least: int, epsilon: Fraction) -> Ints:
        chance = sum(self._law(0, epsilon)[least:])
        laws = [[math.comb(n, k) * chance**k * (1 - chance) ** (n - k) for k in range(n + 1)] for n in empty.tolist()]
        return np.array([self._draw(law) for law in laws], dtype=np.int64)

    def draw_above(self, number: int, least: int, epsilon: Fraction) -> Ints:
        tail = self._law(0, epsilon)[least:]
        return np.array([least + self._draw([t / sum(tail) for t in tail]) for _ in range(number)], dtype=np.int64)

    def choice(self, number: int, size: int, *, replace: bool, shuffle: bool) -> Ints:
        choices = list(itertools.combinations(range(number), size))
        return np.array(choices[self._draw([1 / len(choices)] * len(choices))], dtype=np.int64)


def fit_models_once(patch: pytest.MonkeyPatch) -> None:
    """What has been measured has one model, whoever was measured: programs that differ later do not fit it again."""
    fitted: dict[Any, Model] = {}

    def find_model(
        tables: Sequence[NoisyTable], sizes: Sequence[int], nested: Any = (), *, mixed: bool = True
    ) -> Model:
        measured = ((one.columns, one.budget, one.choice, one.law, one.counts.tobytes()) for one in tables)
        key = (tuple(sizes), *measured)
        if key not in fitted:
            fitted[key] = Model(tables, sizes, nested, mixed=mixed)
            vars(fitted[key])["fitted_table"] = cache(fitted[key].fitted_table)
        return fitted[key]

    patch.setattr(publish, "Model", find_model)


def worst_ratio(one: dict[Any, float], other: dict[Any, float]) -> float:
    assert one.keys() == other.keys()
    return max(max(one[o] / other[o], other[o] / one[o]) for o in one)


def worst_over(
    tables: Iterable[tuple[Any, ...]],
    added: Iterable[Any],
    law: Callable[[tuple[Any, ...]], dict[Any, float]],
    order: Callable[[Any], Any] | None = None,
) -> float:
    """The largest likelihood ratio of any output, between any of the tables and itself with one more record.

    ``law`` gives the exact distribution of outputs for a table, whose records are sorted by ``order``.
    """
    known = cache(law)
    pairs = [(one, tuple(sorted((*one, record), key=order))) for one, record in itertools.product(tables, added)]
    return max((worst_ratio(known(one), known(more)) for one, more in pairs), default=0.0)


def chi_square(observed: Sequence[int], chances: NDArray[np.float64]) -> None:
    """Observed counts against exact chances; what is left of the chances is a last class."""
    seen = np.array([*observed, 0][: len(chances) + 1], dtype=float)
    total = float(np.sum(observed))
    expected = np.append(chances, max(0.0, 1 - chances.sum())) * total
    seen[-1] = total - seen[:-1].sum()
    few = expected < 5
    pairs = [*zip(seen[~few], expected[~few], strict=True), (seen[few].sum(), expected[few].sum())]
    kept = [(o, e) for o, e in pairs if e > 1e-6]
    statistic = sum((o - e) ** 2 / e for o, e in kept)
    assert stats.chi2.sf(statistic, max(len(kept) - 1, 1)) > FALSE_ALARM


@cache
def orders(length: int) -> list[list[int]]:
    """All permutations of 0..length-1."""
    return [list(order) for order in itertools.permutations(range(length))]


class Enumerator:
    """A Shuffler that replays every outcome of every call, one run after the other, all equally likely."""

    def __init__(self) -> None:
        self.path: list[tuple[int, int]] = []  # (choice, number of choices) of each call of this run
        self.call = 0

    def permutation(self, items: int | NDArray[Any]) -> NDArray[Any]:
        """The next outcome of this call."""
        array = np.arange(items) if isinstance(items, int | np.integer) else np.array(items)
        return array[self._order(len(array))]

    def shuffle(self, items: NDArray[Any]) -> None:
        """The next outcome of this call, in place."""
        items[:] = items[self._order(len(items))]

    def integers(self, low: int, high: int, size: int | None = None) -> Any:
        """The next outcome of this call."""
        if size is None:
            return int(self.integers(low, high, 1)[0])
        choice = self._chosen((high - low) ** size)
        digits = [choice // (high - low) ** i % (high - low) for i in range(size)]
        return np.array([low + digit for digit in digits], dtype=np.int64)

    def _order(self, length: int) -> list[int]:
        return orders(length)[self._chosen(factorial(length))]

    def _chosen(self, choices: int) -> int:
        if self.call == len(self.path):
            self.path.append((0, choices))
        choice, known = self.path[self.call]
        assert known == choices
        self.call += 1
        return choice

    def runs(self, run: Callable[[], tuple[int, ...]]) -> Iterator[tuple[tuple[int, ...], Fraction]]:
        """What ``run`` gives with its probability, depth first over all outcomes."""
        while True:
            self.call = 0
            outcome = run()
            assert self.call == len(self.path)
            weight = 1
            for _, choices in self.path:
                weight *= choices
            yield outcome, Fraction(1, weight)
            while self.path and self.path[-1][0] + 1 == self.path[-1][1]:
                self.path.pop()
            if not self.path:
                return
            choice, choices = self.path[-1]
            self.path[-1] = (choice + 1, choices)
