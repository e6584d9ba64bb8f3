"""Count every item of a large universe: the lengths of records, a cap that follows from them, and what the counts say.

The lengths of records are counted first, for ``LENGTHS`` of the budget, in public classes. They give the ``cap`` L and
what the items may spend. Of few records they are counted once more, for ``AGAIN``.

A record of at most L items then raises the count of each of them by one in the histogram ``whole``. A longer one does
so for L of its items, drawn at random, in the histogram ``cut``. A record lies in one of the two. So it changes at most
L counts, by one each: noise of scale L/e spends e. Gaussian noise of variance L/(2 rho) spends rho.

An item's number of records is estimated by whole + f cut. The factor f is the mean length of the longer records beside
L. It is off for an item that prefers the longest of them, or the shortest.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.dp_random import NoiseLaw, TableNoise
    from privsql.mechanisms.dp.noisy_tables import Ints, NoisyTable, Reals
    from privsql.mechanisms.views.item_sets import WeightedSets

# Lengths --------------------------------------------------------------------------------------------------------------

LENGTHS = Fraction(2, 100)  # of the budget: the lengths of records
AGAIN = Fraction(10, 100)  # once more, where there are few
EXACT, PARTS, LONGEST = 16, 4, 1024  # lengths with a class each; classes of a doubling beyond; the last class begins


def length_classes(items: int) -> tuple[tuple[int, int], ...]:
    """Return the shortest and the longest length of each class of record lengths, for a universe of so many items.

    >>> length_classes(21)[-3:]
    ((16, 16), (17, 20), (21, 21))
    """
    starts, width = list(range(min(EXACT, items) + 1)), EXACT // PARTS
    first = EXACT + 1
    while first <= min(items, LONGEST):
        starts += range(first, min(first + PARTS * width, items + 1), width)
        first, width = first + PARTS * width, 2 * width
    if items > LONGEST:
        starts.append(LONGEST + 1)
    return tuple((start, end - 1) for start, end in zip(starts, [*starts[1:], items + 1], strict=True))


def count_lengths(source: WeightedSets) -> Ints:
    """Return the number of records in each class of lengths."""
    edges = [start for start, _ in length_classes(source.items)]
    place = np.searchsorted(edges, np.diff(source.starts), side="right") - 1
    return np.bincount(place, source.weights, len(edges)).astype(np.int64)


SURE, LIKELY = 16, 9  # squares of standard deviations by which a sum of counts tells that there are records
FARTHER = 2  # times the longest length, up to which noise may have hidden some


def find_tail(counts: Sequence[int], classes: Sequence[tuple[int, int]], variance: Fraction) -> int:
    """Return the number of classes up to the longest records that seem to exist; the counts beyond are noise alone.

    The last such class is the last one that begins a run of lengths whose counts sum to ``SURE`` or more, by the square
    of standard deviations. A class up to ``FARTHER`` times as far out is included if its run reaches ``LIKELY``.
    Without this cut the noise of long lengths would weigh much more than that of short ones.
    """

    def is_told(first: int, square: int) -> bool:
        total = 0
        for number, count in enumerate(counts[first:], start=1):
            total += count
            if total > 0 and total**2 >= square * number * variance:
                return True
        return False

    last = next((first + 1 for first in reversed(range(len(counts))) if is_told(first, SURE)), 0)
    near = range(last, far_behind(classes, last))
    return next((first + 1 for first in reversed(near) if is_told(first, LIKELY)), last)


def far_behind(classes: Sequence[tuple[int, int]], end: int) -> int:
    """Return the number of classes that begin at no more than ``FARTHER`` times the longest length before ``end``."""
    longest = classes[end - 1][1] if end else 1
    return sum(start <= FARTHER * longest for start, _ in classes)


# Rule -----------------------------------------------------------------------------------------------------------------
# What items may spend, and at most how many of a record are counted: by the published lengths, in exact fractions.
#
# The rule looks at one item: that of rank 20 where items follow Zipf's law, c = (items of all records) / (20 H) with
# H = 1 + 1/2 + .. + 1/N. With L items of a record its relative error has the square
#
#     (v (1 + f^2) + (f - 1) c g) / c^2 + (g w / f)^2 + (h d / 4)^2
#
# where v is the variance of a count, g the share of all items that stand in longer records, w the standard deviation of
# f by the noise of lengths, h the share of all items that the cap cuts away, and d the standard deviation of the longer
# lengths beside their mean: the factors of single items are taken to differ by a quarter of that. The cap with the
# least error is taken. Items spend the least of ``SHARES`` with which that is ``CLOSE``.
#
# Where views of so few records would not tell a pair of such items from none, lengths are counted once more, and items
# spend ``ALONE``.

SHARES = (Fraction(6, 100), Fraction(12, 100), Fraction(24, 100))
ALONE = Fraction(74, 100)
CLOSE = Fraction(1, 20)
RANK = 20
LEAST_SPREAD = 4  # as the rule takes it
DIGITS = 1000  # a factor is a whole number of thousandths


@dataclass(frozen=True)
class ItemRule:
    """How the items of a large universe are counted.

    Attributes:
        cap: The most items of one record that are counted.
        budget: The part of epsilon (or rho) that all counts of items spend together.
        factor: By how much the counts over longer records, which were cut to ``cap`` items, are multiplied.
        factor_variance: The variance of the factor that the noise of the lengths causes.
    """

    cap: int
    budget: Fraction
    factor: Fraction
    factor_variance: Fraction


def is_sparse(lengths: NoisyTable, items: int, pair_variance: float) -> bool:
    """Return whether views would be too noisy to tell a pair of items from no record at all.

    Args:
        lengths: The published record lengths.
        items: The number of items.
        pair_variance: The variance of a pair's count in views, if items spend the largest of ``SHARES``.
    """
    return Fraction(pair_variance) > LengthLaw.read(lengths, items).reference ** 2


def choose_rule(lengths: NoisyTable, items: int, budget: Fraction, shares: Sequence[Fraction]) -> ItemRule:
    """Return the rule by which items are counted.

    Args:
        lengths: The published record lengths.
        items: The number of items.
        budget: The budget of the release.
        shares: The parts of the budget that counts of items may spend.
    """
    law = LengthLaw.read(lengths, items)
    caps = [law.describe_cap(at) for at in range(1, max(law.end, 2))]
    for share in shares:
        noise = [noise_variance(lengths.law, share * budget / one.cap) for one in caps]
        errors = [one.square_error(variance, law.reference) for one, variance in zip(caps, noise, strict=True)]
        best = min(range(len(caps)), key=lambda at: (errors[at], at))
        if errors[best] <= CLOSE**2:
            break
    return ItemRule(caps[best].cap, share * budget, caps[best].factor, caps[best].factor_variance)


def noise_variance(law: NoiseLaw, budget: Fraction) -> Fraction:
    """Return the variance of a count's noise as a fraction that is nearly exact and the same on every machine."""
    return Fraction(law.scale(budget)) ** 2 * (1 if law.concentrated else 2)


@dataclass(frozen=True)
class LengthLaw:
    """What published record lengths say: the mean size of classes, counts up to the ``end`` of the tail, and noise."""

    classes: tuple[tuple[int, int], ...]
    sizes: tuple[Fraction, ...]
    counts: tuple[int, ...]
    end: int
    variance: Fraction
    reference: Fraction
    """The number of records with the item that the rule looks at."""

    @staticmethod
    def read(lengths: NoisyTable, items: int) -> LengthLaw:
        """Return what noisy lengths say of a universe of so many items."""
        classes, variance = length_classes(items), noise_variance(lengths.law, lengths.budget)
        noisy = lengths.counts.tolist()
        end = find_tail(noisy, classes, variance)
        counts = tuple(count if at < end else 0 for at, count in enumerate(noisy))
        sizes = tuple(Fraction(start + min(last, 2 * LONGEST), 2) for start, last in classes)
        everything = max(sum((n * size for n, size in zip(counts, sizes, strict=True)), Fraction(0)), Fraction(1))
        harmonic = Fraction(round(DIGITS * sum(1 / k for k in range(1, items + 1))), DIGITS)
        return LengthLaw(classes, sizes, counts, end, variance, everything / RANK / harmonic)

    def describe_cap(self, at: int) -> _Cap:
        """Return what the lengths say of a cap at the end of a class."""
        cap, behind = self.classes[at][1], range(at + 1, len(self.classes))
        everything = sum((n * size for n, size in zip(self.counts, self.sizes, strict=True)), Fraction(0))
        records, held = sum(self.counts[i] for i in behind), sum((self.counts[i] * self.sizes[i] for i in behind), ZERO)
        if records <= 0 or held <= cap * records:
            return _Cap(cap, Fraction(1), ZERO, ZERO, ZERO, ZERO)
        mean = held / records
        spread = sum((self.counts[i] * (self.sizes[i] - mean) ** 2 for i in behind), ZERO) / records / mean**2
        near = range(at + 1, far_behind(self.classes, self.end))
        doubt = self.variance * sum(((self.sizes[i] - mean) ** 2 for i in near), ZERO) / (cap * records) ** 2
        factor = Fraction(round(DIGITS * mean / cap), DIGITS)
        longer, lost = held / everything, (held - cap * records) / everything
        return _Cap(cap, factor, doubt, longer, lost, max(spread, ZERO))


ZERO = Fraction(0)


@dataclass(frozen=True)
class _Cap:
    """A possible cap, and what the lengths say of longer records: f, w^2, g, h and d^2 of the rule above."""

    cap: int
    factor: Fraction
    factor_variance: Fraction
    longer: Fraction
    lost: Fraction
    spread: Fraction

    def square_error(self, variance: Fraction, reference: Fraction) -> Fraction:
        noise = variance * (1 + self.factor**2) + (self.factor - 1) * reference * self.longer
        off = self.longer**2 * self.factor_variance / self.factor**2
        return noise / reference**2 + off + self.lost**2 * self.spread / 16


# Counts ---------------------------------------------------------------------------------------------------------------


def count_items_capped(source: WeightedSets, cap: int, draw: np.random.Generator) -> tuple[Ints, Ints]:
    """Count the records that have each item, where no record counts for more than ``cap`` items.

    The items that a longer record keeps are drawn at random, independently for every record.

    Returns:
        The counts over records of at most ``cap`` items, and those over longer records after they were cut.
    """
    sizes = np.diff(source.starts)
    in_long = (sizes > cap)[source.owners]
    whole = np.bincount(source.codes[~in_long], source.weights[source.owners[~in_long]], source.items)
    records = source.weights[sizes > cap].astype(np.int64)
    lists = np.repeat(np.flatnonzero(sizes > cap), records)  # a record by itself, of those with the same set
    long = sizes[lists]
    record = np.repeat(np.arange(len(lists)), long)
    within = np.arange(len(record)) - np.repeat(np.cumsum(long) - long, long)
    codes = source.codes[source.starts[lists][record] + within]
    order = np.lexsort((draw.random(len(record)), record))  # the places of a record follow each other
    cut = np.bincount(codes[order[within < cap]], minlength=source.items)
    return whole.astype(np.int64), cut.astype(np.int64)


@dataclass(frozen=True)
class ItemCounts:
    """The published counts of all N items of a large universe, and the rule by which they were made.

    Attributes:
        lengths: The one or two tables of record lengths.
        rule: The rule, which follows from these.
        whole: The noisy counts over records of at most ``cap`` items (N,).
        cut: The noisy counts over longer records, which were cut to ``cap`` items (N,).
        law: The distribution of the noise.
    """

    lengths: tuple[NoisyTable, ...]
    rule: ItemRule
    whole: Ints
    cut: Ints
    law: NoiseLaw

    @property
    def scale(self) -> float:
        """Return the scale of the noise of every count."""
        return self.law.scale(self.rule.budget / self.rule.cap)

    @cached_property
    def estimates(self) -> Reals:
        """Return the estimated number of records with each item (N,): whole + factor cut.

        It is unbiased except for the error of the factor.
        """
        return np.asarray(self.whole + float(self.rule.factor) * self.cut)

    @cached_property
    def variances(self) -> Reals:
        """Return the variance of every estimate (N,): from noise, from the draw of items, and from the factor."""
        factor, noise = float(self.rule.factor), self.law.variance(self.rule.budget / self.rule.cap)
        cut = np.maximum(self.cut, 0.0)
        off = (factor * self.spread) ** 2 + float(self.rule.factor_variance)
        return noise * (1 + factor**2) + factor * (factor - 1) * cut + off * cut**2

    @cached_property
    def spread(self) -> float:
        """Return the standard deviation of the factors of single items around their mean.

        Suppose an item occurs 2^t times as often in records of twice the length. Then its factor is a function f(t),
        and its share in longer records grows with t. So t is estimated from how much the ratios of cut to whole differ
        between items beyond noise: the mean square of (cut - r whole), divided by that of r whole, with r = sum cut /
        sum whole. Items in nearly all records follow another law, so the result is at least a quarter of the deviation
        of longer lengths.
        """
        size, count = self._sizes
        longer = size > self.rule.cap
        if not (count[longer] > 0).any() or not (count[~longer] > 0).any():
            return 0.0
        long, short = np.maximum(count[longer], 0.0), np.maximum(count[~longer], 0.0)
        ratio = max(float(self.cut.sum()), 0.0) / max(float(self.whole.sum()), 1.0)
        noise = self.law.variance(self.rule.budget / self.rule.cap)
        drawn = (1 + ratio) * ratio * np.maximum(self.whole, 0.0)  # an item of a record is in either by chance, too
        far = float(((self.cut - ratio * self.whole) ** 2 - noise * (1 + ratio**2) - drawn).sum())
        square = far / max(ratio**2 * float((self.whole.astype(np.float64) ** 2 - noise).sum()), 1.0)
        logs = np.log(size)
        apart = np.average(logs[longer], weights=long) - np.average(logs[~longer], weights=short * size[~longer])
        power = min(np.sqrt(max(square, 0.0)), 1.0) / max(apart, 0.1)
        means = [np.average(size[longer], weights=long * size[longer] ** at) for at in (0.0, power)]
        deviation = np.average((size[longer] / means[0] - 1) ** 2, weights=long) ** 0.5
        return float(max(means[1] / means[0] - 1, deviation / LEAST_SPREAD))

    @cached_property
    def _sizes(self) -> tuple[Reals, Reals]:
        """Return the mean length of every class but that of empty records, and its count without the empty tail."""
        law = LengthLaw.read(self.lengths[-1], len(self.whole))
        return np.array(law.sizes[1:], dtype=np.float64), np.array(law.counts[1:], dtype=np.float64)

    def largest_items(self, number: int, without: Sequence[int] = ()) -> list[int]:
        """Return the codes of the ``number`` items with the largest estimates, best first; ties are broken by code.

        The comparison is exact, in whole numbers. Items in ``without`` are left out.
        """
        parts = self.rule.factor.numerator, self.rule.factor.denominator
        score = self.cut * np.int64(parts[0]) + self.whole * np.int64(parts[1])
        order = np.argsort(-score, kind="stable")
        kept = order[~np.isin(order, np.array(without, dtype=np.int64))]
        return [int(code) for code in kept[:number]]


def measure_items(
    source: WeightedSets, lengths: Sequence[NoisyTable], rule: ItemRule, noise: TableNoise, draw: np.random.Generator
) -> ItemCounts:
    """Return the noisy counts of all items, which spend the budget of the rule."""
    whole, cut = count_items_capped(source, rule.cap, draw)
    both = noise.add_noise(np.concatenate((whole, cut)), rule.budget / rule.cap)
    return ItemCounts(tuple(lengths), rule, both[: source.items], both[source.items :], lengths[0].law)
