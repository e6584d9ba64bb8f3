"""SUM, AVG, MIN and MAX of the sensitive column: an estimate, and bounds that are certain (Zhang et al., ICDE 2007).

For every group g the release tells n_g, how many of its records meet the condition on quasi-identifiers, and the
values of all |g| records. Which n_g of the |g| it are is not told, so an answer is certain between the best and the
worst choice; the estimate is the mean over all choices. "Chosen" values are those that meet the condition on the
sensitive column.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy

from privsql.answers.channel import Floats

if TYPE_CHECKING:
    from privsql.mechanisms.permute.axis import Ints

EXACT = 2.0**53  # below which doubles add up whole numbers without rounding
STEPS = 60  # at most, of the search for an extreme average; it halts far earlier
Figures = tuple[Floats, Floats, Floats, Floats]  # estimate, standard error (NaN: none), low, high, each (S,)


@dataclass(frozen=True)
class Held:
    """The chosen values of every group, rising: rows (group, rank of the value, records); the groups' sizes (B,)."""

    group: Ints
    rank: Ints
    records: Ints
    values: Floats  # (m,) by rank, rising
    sizes: Ints

    @cached_property
    def keys(self) -> Ints:
        """Group and rank in one number, rising."""
        return np.asarray(self.group * (len(self.values) + 1) + self.rank)

    @cached_property
    def counted(self) -> Ints:
        """Records before every row, and of all rows (R + 1,)."""
        return np.concatenate(([0], np.cumsum(self.records)))

    @cached_property
    def summed(self) -> Floats:
        """The same for sums of values."""
        return np.concatenate(([0.0], np.cumsum(self.records * self.values[self.rank])))

    @cached_property
    def first(self) -> Ints:
        """The first row of every group, and the number of rows (B + 1,)."""
        return np.searchsorted(self.group, np.arange(len(self.sizes) + 1))

    @cached_property
    def chosen(self) -> Ints:
        """Chosen records of every group (B,)."""
        return np.diff(self.counted[self.first])

    @cached_property
    def mirrored(self) -> Held:
        """The same with all values negated."""
        back = np.lexsort((-self.rank, self.group))
        top = len(self.values) - 1
        return Held(self.group[back], top - self.rank[back], self.records[back], -self.values[::-1], self.sizes)

    def below(self, group: Ints, rank: Ints) -> Ints:
        """Chosen records of a group whose rank is less."""
        row = np.searchsorted(self.keys, group * (len(self.values) + 1) + rank)
        return np.asarray(self.counted[row] - self.counted[self.first[group]])

    def least(self, group: Ints, number: Ints) -> Floats:
        """Sum of so many of the smallest chosen values of a group."""
        target = self.counted[self.first[group]] + number
        row = np.searchsorted(self.counted, target, side="right") - 1
        extra = np.append(self.values[self.rank], 0.0)[row] * (target - self.counted[row])
        return np.asarray(self.summed[row] + extra - self.summed[self.first[group]])

    def at(self, group: Ints, number: Ints) -> Floats:
        """The chosen value of a group that so many are before."""
        row = np.searchsorted(self.counted, self.counted[self.first[group]] + number, side="right") - 1
        return np.append(self.values[self.rank], np.nan)[row]


@dataclass(frozen=True)
class Met:
    """For S sets of records: pairs (set, group) with n > 0 records that meet the condition."""

    sets: int
    set: Ints
    group: Ints
    n: Ints

    def total(self, parts: Floats | Ints) -> Floats:
        """Sums over the groups (S,)."""
        return np.bincount(self.set, parts, minlength=self.sets).astype(np.float64)

    def smallest(self, parts: Floats, where: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Floats:
        """Minima over some of the groups (S,), infinite for none."""
        found = np.full(self.sets, np.inf)
        np.minimum.at(found, self.set[where], parts[where])
        return found


def possible(held: Held, met: Met) -> Floats:
    """The most chosen records that each set can have (S,)."""
    return met.total(np.minimum(met.n, held.chosen[met.group]))


def forced(held: Held, met: Met) -> Floats:
    """Return the fewest chosen records that each set can have (S,)."""
    return met.total(_forced(held, met))


def _forced(held: Held, met: Met) -> Ints:
    return np.maximum(met.n - (held.sizes - held.chosen)[met.group], 0)


def total(held: Held, met: Met) -> Figures:
    """SUM."""
    share = met.n / held.sizes[met.group]
    sums = np.diff(held.summed[held.first])
    zero = np.full(met.sets, np.searchsorted(held.values, 0.0))
    low, _ = _extreme(held, met, zero)
    other = held.mirrored
    high, _ = _extreme(other, met, np.full(met.sets, np.searchsorted(other.values, 0.0)))
    slack = rounding(held)
    return met.total(share * sums[met.group]), _error(held, met), low - slack, slack - high


def rounding(held: Held) -> float:
    """How far a sum of doubles may lie from that of the values that they stand for; 0 where all of them are whole.

    Each value is rounded once, and each of its additions by as much at most as the sum of all magnitudes (Higham 2002,
    section 4.2).
    """
    whole = float(np.abs(held.values[held.rank]) @ held.records)
    if whole < EXACT and bool((held.values == np.rint(held.values)).all()):
        return 0.0
    return whole * (len(held.records) + 2) * float(np.finfo(float).eps)


def _error(held: Held, met: Met, centre: Floats | None = None) -> Floats:
    """Of the sum of chosen values less ``centre`` (S,): drawing n of |g| without replacement in every group."""
    values = held.values[held.rank]
    squares = np.bincount(held.group, held.records * values**2, minlength=len(held.sizes))[met.group]
    sums = np.diff(held.summed[held.first])[met.group]
    chosen, sizes = held.chosen[met.group], held.sizes[met.group]
    shift = np.zeros(len(met.n)) if centre is None else centre[met.set]
    second, first = (squares - 2 * shift * sums + shift**2 * chosen) / sizes, (sums - shift * chosen) / sizes
    variance = met.n * (second - first**2).clip(0) * (sizes - met.n) / np.maximum(sizes - 1, 1)
    return np.asarray(np.sqrt(met.total(variance)))


def _extreme(held: Held, met: Met, rank: Ints) -> tuple[Floats, Floats]:
    """The least sum of v - x over choices, for x just below the value of a rank (S,): (sum of v, number) taken (S,).

    Of every group: chosen values below x first, then those that are not chosen and count nothing, then the others.
    """
    below = held.below(met.group, rank[met.set])
    unchosen = held.sizes[met.group] - held.chosen[met.group]
    taken = np.minimum(met.n, below) + np.maximum(met.n - below - unchosen, 0)
    return met.total(held.least(met.group, taken)), met.total(taken)


def mean(held: Held, met: Met) -> Figures:
    """AVG; of a set without chosen records there is none."""
    share = met.n / held.sizes[met.group]
    sums = np.diff(held.summed[held.first])
    number = met.total(share * held.chosen[met.group])
    with np.errstate(invalid="ignore", divide="ignore"):
        estimate = met.total(share * sums[met.group]) / number
        error = _error(held, met, np.nan_to_num(estimate)) / number
    low = _least_mean(held, met, estimate)
    return estimate, error, low, -_least_mean(held.mirrored, met, -estimate)


def _least_mean(held: Held, met: Met, start: Floats) -> Floats:
    """The least average of the chosen values over all choices that have any, by Dinkelbach's iteration."""
    least = start.copy()
    for _ in range(STEPS):
        sums, number = _extreme(held, met, np.searchsorted(held.values, least))
        with np.errstate(invalid="ignore", divide="ignore"):
            lower = np.where(number > 0, sums / number, least)
        if not (lower < least).any():
            break
        least = np.fmin(least, lower)
    return least


def minimum(held: Held, met: Met) -> Figures:
    """MIN: certain bounds, and the value that it is as likely to exceed as not; no standard error."""
    chosen = held.chosen[met.group]
    any_chosen = chosen > 0
    low = met.smallest(held.at(met.group, np.zeros_like(met.n)), any_chosen)
    fewest = _forced(held, met)
    highest = -met.smallest(-held.at(met.group, np.maximum(chosen - 1, 0)), any_chosen)
    sure = met.smallest(held.at(met.group, np.maximum(chosen - np.maximum(fewest, 1), 0)), fewest > 0)
    high = np.where(np.isfinite(sure), sure, highest)
    estimate = held.values[_median(held, met)]
    return np.clip(estimate, low, high), np.full(met.sets, np.nan), low, high


def maximum(held: Held, met: Met) -> Figures:
    """MAX, likewise."""
    estimate, error, low, high = minimum(held.mirrored, met)
    return -estimate, error, -high, -low


def _median(held: Held, met: Met) -> Ints:
    """The least rank that the minimum, if there is one, does not exceed with a probability of at least one half."""
    target = (1 + _none_up_to(held, met, np.full(met.sets, len(held.values)))) / 2
    low, high = np.zeros(met.sets, dtype=np.int64), np.full(met.sets, len(held.values) - 1)
    while (low < high).any():
        middle = (low + high) // 2
        enough = _none_up_to(held, met, middle + 1) <= target
        low, high = np.where(enough, low, np.minimum(middle + 1, high)), np.where(enough, middle, high)
    return low


def _none_up_to(held: Held, met: Met, rank: Ints) -> Floats:
    """Probability that no chosen value of a lower rank is among the records that meet the condition (S,)."""
    sizes, below = held.sizes[met.group], held.below(met.group, rank[met.set])
    left = sizes - below
    free = left >= met.n
    kept = scipy.special.gammaln(left + 1) - scipy.special.gammaln(np.maximum(left - met.n, 0) + 1)
    logs = kept - scipy.special.gammaln(sizes + 1) + scipy.special.gammaln(sizes - met.n + 1)
    return np.where(met.total((~free).astype(np.int64)) > 0, 0.0, np.exp(met.total(np.where(free, logs, 0.0))))
