"""Choosing items of a large universe: how many is a public rule, which ones a private choice.

One hundredth of the budget counts the records, three tenths choose. The items that the publisher declared come first
and cost nothing; the others are chosen one after the other, each by OpenDP's noisy maximum over the numbers of records
of all items that are left, with an equal part e of the budget (a record more raises each number by one at most: the
scores are monotonic). A score is exceeded by another one by more than t with a probability of at most N exp(-e t).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import log
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.setvalued.parameters import TINY_UNIVERSE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.dpnoise import SelectionNoise
    from privsql.mechanisms.noisytables.measured import Ints

TOTAL = Fraction(1, 100)  # of the budget: the number of records
CHOICE = Fraction(3, 10)
MISSED = 20  # one part in so many of the records is what the last choice may be wrong by


@dataclass(frozen=True)
class Budgets:
    """Of a large universe: for the number of records, for all choices together, for the tables."""

    total: Fraction
    choice: Fraction
    tables: Fraction

    @staticmethod
    def of(epsilon: Fraction, *, choosing: bool) -> Budgets:
        """Their sum is ``epsilon``; where all that is measured was declared, nothing is spent on choices."""
        choice = CHOICE * epsilon if choosing else Fraction(0)
        return Budgets(TOTAL * epsilon, choice, epsilon - TOTAL * epsilon - choice)


def how_many(epsilon: Fraction, universe: int, records: int, declared: int) -> int:
    """How many items are measured: at most ``TINY_UNIVERSE``, at least one, and those that were declared.

    The largest number l for which the choice errs by at most a twentieth of the (noisy number of) ``records``:
    l ln(N) / (3/10 epsilon) <= records / 20.
    """
    most = CHOICE * epsilon * max(records, 0) / MISSED / Fraction(log(universe))
    return max(1, declared, min(TINY_UNIVERSE, declared + int(most)))


def choose(
    counts: Sequence[int], declared: Sequence[int], number: int, epsilon: Fraction, noise: SelectionNoise
) -> Ints:
    """Codes of the measured items in order: those declared, then ``number`` less so many, at ``epsilon`` each."""
    scores, left = np.array(counts, dtype=np.int64), np.ones(len(counts), dtype=bool)
    chosen = list(declared)
    left[chosen] = False
    while len(chosen) < number:
        candidates = np.flatnonzero(left)
        code = int(candidates[noise.best(scores[candidates], epsilon)])
        chosen.append(code)
        left[code] = False
    return np.array(chosen, dtype=np.int64)


def beyond(universe: int, epsilon: Fraction, chance: float) -> float:
    """By how much an item that was not chosen may exceed the last one that was, but for a ``chance``: ln(N/b)/e."""
    return log(universe / chance) / float(epsilon)
