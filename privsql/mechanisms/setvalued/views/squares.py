"""Least squares over tables of patterns, in the space of parities.

Of a table of k items with noise of variance s^2 in each of its 2^k cells the parity of q, a set of these items, is
sum over x of (-1)^|x and q| y_x: it has variance 2^k s^2, and the parities of a table have uncorrelated errors. So
every parity is told by the tables that hold all of q, and the least-squares estimate is their average with weights
1/variance; v_q = 1/(sum of these). A question is a table f over the patterns of k items, and its answer

    sum over q of F_q z_q / 2^k,  with variance  sum over q of (F_q / 2^k)^2 v_q,

F the transform of f: without bias and exact, whatever is asked, where all q with F_q != 0 were told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.setvalued.views.patterns import among, containing, inside, sizes, transformed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.noisytables.measured import Measured, Reals

ZERO = 1e-9  # of a coefficient of a question, relative to the largest: doubles


@dataclass(frozen=True)
class Error:
    """What the noise does to an answer: its standard deviation, and the largest weight of one count.

    Both are infinite where a parity that is needed was not told.
    """

    deviation: float
    step: float


UNTOLD = Error(np.inf, np.inf)


@dataclass(frozen=True)
class Squares:
    """``value``, ``precision`` (2^m,): z_q and 1/v_q of every parity; 0 where no table told it."""

    items: int
    value: Reals
    precision: Reals
    tables: tuple[Measured, ...]

    @property
    def variance(self) -> Reals:
        """v_q (2^m,): infinite where no table told it."""
        found: Reals = np.full(len(self.precision), np.inf)
        return np.divide(1.0, self.precision, out=found, where=self.precision > 0)

    @property
    def total(self) -> float:
        """The estimated number of records."""
        return float(self.value[0])

    def tells(self, chosen: Sequence[int]) -> bool:
        """Whether all parities of the items at some places were told."""
        return bool(self.precision[among(chosen, self.items)].all())

    def error(self, chosen: Sequence[int], question: Reals) -> Error:
        """Of the answer to a question over the patterns of the items at ``chosen``."""
        wanted, at = transformed(question) / len(question), among(chosen, self.items)
        wanted[np.abs(wanted) <= ZERO * max(np.abs(wanted).max(), 1e-300)] = 0
        precision = self.precision[at]
        if (wanted != 0)[precision == 0].any():
            return UNTOLD
        weight = np.divide(wanted, precision, out=np.zeros_like(wanted), where=precision > 0)
        step = 0.0
        for one in self.tables:
            inner = among([at for at, place in enumerate(chosen) if place in one.columns], len(chosen))
            step = max(step, float(np.abs(transformed(weight[inner])).max()) * precision_of(one))
        return Error(float(np.sqrt((weight * wanted).sum())), step)

    def containing(self) -> tuple[Reals, Reals]:
        """Of every set of places the number of records that have all of them, and its variance (2^m,) each."""
        found = containing(transformed(self.value) / len(self.value))
        return found, inside(self.variance) * 0.25 ** sizes(self.items)


def precision_of(one: Measured) -> float:
    """1/variance of every parity of a table."""
    return 1 / (one.variance * one.counts.size)


def fitted(tables: Sequence[Measured], items: int) -> Squares:
    """The least-squares estimate of all parities that some table holds."""
    sums, known = np.zeros(1 << items), np.zeros(1 << items)
    for one in tables:
        at, precision = among(one.columns, items), precision_of(one)
        sums[at] += precision * transformed(one.counts.reshape(-1).astype(np.float64))
        known[at] += precision
    value = np.divide(sums, known, out=np.zeros_like(sums), where=known > 0)
    return Squares(items, value, known, tuple(tables))
