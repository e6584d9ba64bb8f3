"""Count every item of a large universe with noise, when records are cut to a number of items.

A universe is large if it has more than ``TINY_UNIVERSE`` items, so that not all of their patterns can be counted.

First the lengths of records (their numbers of items) are counted in public classes, which are ranges of lengths. This
takes the share ``LENGTHS`` of the budget. The lengths determine the ``cap`` L, and what the counts of items may spend.
If there are few records, lengths are counted once more, for the share ``AGAIN``.

A record of at most L items is counted for each of its items in the histogram ``whole``. A longer record is counted for
L of its items, drawn at random, in the histogram ``cut``. So a record changes at most L counts by one each. Laplace
noise of scale L/e spends epsilon e, and Gaussian noise of variance L/(2 rho) spends rho.

The number of records with an item is estimated by whole + f cut. The factor f is the mean length of the longer records
divided by L. It is wrong for an item that is more frequent in the longest of these records than in the others, or the
reverse; the variances of the estimates allow for that.
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

LENGTHS = Fraction(2, 100)  # share of the budget for the lengths of records
AGAIN = Fraction(10, 100)  # share for counting lengths once more, if there are few records
EXACT, PARTS, LONGEST = (
    16,
    4,
    1024,
)  # lengths up to EXACT have a class each; beyond, each doubling has PARTS classes; the last begins after LONGEST


def length_classes(items: int) -> tuple[tuple[int, int], ...]:
    """Return the classes (ranges) in which record lengths are counted, each as its shortest and its longest length.

    The length of a record is its number of items. Lengths up to ``EXACT`` have a class each; later classes are wider.

    Args:
        items: The number of items of the universe, which no record exceeds.

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
    """Return the number of records in each class of lengths (classes,), as ``length_classes`` lists them."""
    edges = [start for start, _ in length_classes(source.items)]
    place = np.searchsorted(edges, np.diff(source.starts), side="right") - 1
    return np.bincount(place, source.weights, len(edges)).astype(np.int64)


SURE, LIKELY = 16, 9  # squared standard deviations above which a sum of counts shows records
FARTHER = 2  # longer records may be hidden by noise up to so many times the longest length


def find_tail(counts: Sequence[int], classes: Sequence[tuple[int, int]], variance: Fraction) -> int:
    """Return how many classes of record lengths seem to hold records; the counts of longer ones are taken for noise.

    The last class with records is the longest one whose noisy count, alone or with those of the next longer classes,
    reaches four standard deviations of noise. A later class replaces it if it reaches three, and begins at no more than
    twice (``FARTHER``) its length. Without this cut, the noise of long lengths would weigh much more than that of short
    ones.

    Args:
        counts: The noisy counts of the classes.
        classes: The shortest and the longest length of each class.
        variance: The variance of the noise in each count.
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
    """Return how many classes of record lengths may hold records, though noise hides some, if ``end`` seem to.

    They are the classes that begin at no more than twice (``FARTHER``) the longest length that seems to occur.

    Args:
        classes: The shortest and the longest length of each class, rising.
        end: The number of classes that seem to hold records: the first ones.
    """
    longest = classes[end - 1][1] if end else 1
    return sum(start <= FARTHER * longest for start, _ in classes)


# Rule -----------------------------------------------------------------------------------------------------------------
# The published lengths decide the budget of the counts of items and the cap, in exact fractions.
#
# The rule looks at one item of N: that of rank 20 if items follow Zipf's law, with c = (items of all records) / (20 H)
# records, H = 1 + 1/2 + .. + 1/N. With a cap of L items, the squared relative error of its count is
#
#     (v (1 + f^2) + (f - 1) c g) / c^2 + (g w / f)^2 + (h d / 4)^2
#
# Here v is the variance of a count, f the factor for longer records, and g the share of all items that are in them. The
# noise of lengths gives f the standard deviation w. The cap cuts away the share h of all items. The longer lengths
# deviate from their mean by d, relatively; the factors of single items are taken to differ by a quarter of that. The
# cap with the least error is taken. Items spend the least of ``SHARES`` with which that error is at most ``CLOSE``.
#
# If there are so few records that views could not tell a pair of such items from none, lengths are counted once more,
# and items spend the share ``ALONE``.

SHARES = (Fraction(6, 100), Fraction(12, 100), Fraction(24, 100))
ALONE = Fraction(74, 100)
CLOSE = Fraction(1, 20)
RANK = 20
LEAST_SPREAD = 4  # factors of single items differ by at least one part in so many of the lengths' deviation
DIGITS = 1000  # a factor is a whole number of thousandths


@dataclass(frozen=True)
class ItemRule:
    """The rule by which all items of a large universe (of more than ``TINY_UNIVERSE`` items) are counted.

    Attributes:
        cap: The most items of one record that are counted.
        budget: The part of epsilon (or rho) that all counts of items spend together.
        factor: The factor by which counts over longer records are multiplied, as these were cut to ``cap`` items.
        factor_variance: The variance of the factor by the noise in the lengths.
    """

    cap: int
    budget: Fraction
    factor: Fraction
    factor_variance: Fraction


def is_sparse(lengths: NoisyTable, items: int, pair_variance: float) -> bool:
    """Return whether there are so few records that noise would hide how often two items occur together.

    That is so if the noise in the count of a pair exceeds the count of a typical item (``LengthLaw.reference``).

    Args:
        lengths: The noisy record lengths.
        items: The number of items.
        pair_variance: The variance of the count of a pair of items in the noisy tables of patterns, if counts of items
            get their largest share of the budget.
    """
    return Fraction(pair_variance) > LengthLaw.read(lengths, items).reference ** 2


def choose_rule(lengths: NoisyTable, items: int, budget: Fraction, shares: Sequence[Fraction]) -> ItemRule:
    """Choose the cap on the items of a record, and the budget that the counts of items spend.

    The cap is the one with the least error of a typical count. The budget is the least with which that error is small.

    Args:
        lengths: The noisy record lengths.
        items: The number of items.
        budget: The budget of the release.
        shares: The shares of the budget that the counts of items may spend, ascending.
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
    """Return the variance of the noise in a count that spends a budget, as a fraction, the same on every machine."""
    return Fraction(law.scale(budget)) ** 2 * (1 if law.concentrated else 2)


@dataclass(frozen=True)
class LengthLaw:
    """The distribution of record lengths that noisy counts suggest.

    Attributes:
        classes: The shortest and the longest length of each class.
        sizes: The mean length of each class.
        counts: The noisy counts of the classes; 0 for classes that seem to hold no record.
        end: The number of classes that seem to hold records.
        variance: The variance of the noise in each count.
        reference: The estimated number of records with a typical item, that of rank ``RANK`` by frequency.
    """

    classes: tuple[tuple[int, int], ...]
    sizes: tuple[Fraction, ...]
    counts: tuple[int, ...]
    end: int
    variance: Fraction
    reference: Fraction

    @staticmethod
    def read(lengths: NoisyTable, items: int) -> LengthLaw:
        """Read the distribution from noisy record lengths, for a universe of ``items`` items."""
        classes, variance = length_classes(items), noise_variance(lengths.law, lengths.budget)
        noisy = lengths.counts.tolist()
        end = find_tail(noisy, classes, variance)
        counts = tuple(count if at < end else 0 for at, count in enumerate(noisy))
        sizes = tuple(Fraction(start + min(last, 2 * LONGEST), 2) for start, last in classes)
        everything = max(sum((n * size for n, size in zip(counts, sizes, strict=True)), Fraction(0)), Fraction(1))
        harmonic = Fraction(round(DIGITS * sum(1 / k for k in range(1, items + 1))), DIGITS)
        return LengthLaw(classes, sizes, counts, end, variance, everything / RANK / harmonic)

    def describe_cap(self, at: int) -> _Cap:
        """Describe what happens if the counted items of a record are capped at the longest length of a class.

        Caps are compared by these figures: how many items are lost, and how uncertain counts get.

        Args:
            at: The number of the class.
        """
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
    """A possible cap on the items of a record that are counted, with figures that predict the error of counts.

    The letters are those of the formula of this error in the comment above ``SHARES``. Longer records are those with
    more items than the cap.

    Attributes:
        cap: The cap L.
        factor: f, the mean length of longer records divided by L.
        factor_variance: w^2, the variance of f by noise.
        longer: g, the share of all items that are in longer records.
        lost: h, the share of all items that the cap cuts away.
        spread: d^2, the squared relative deviation of longer lengths from their mean.
    """

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
        For each item, its records of at most ``cap`` items, and its longer records after they were cut.
    """
    sizes = np.diff(source.starts)
    in_long = (sizes > cap)[source.owners]
    whole = np.bincount(source.codes[~in_long], source.weights[source.owners[~in_long]], source.items)
    records = source.weights[sizes > cap].astype(np.int64)
    lists = np.repeat(np.flatnonzero(sizes > cap), records)  # one entry per record, also for records with the same set
    long = sizes[lists]
    record = np.repeat(np.arange(len(lists)), long)
    within = np.arange(len(record)) - np.repeat(np.cumsum(long) - long, long)
    codes = source.codes[source.starts[lists][record] + within]
    order = np.lexsort((draw.random(len(record)), record))  # the items of a record stay together
    cut = np.bincount(codes[order[within < cap]], minlength=source.items)
    return whole.astype(np.int64), cut.astype(np.int64)


@dataclass(frozen=True)
class ItemCounts:
    """The noisy counts of all N items of a universe of more than ``TINY_UNIVERSE`` items, and the rule that made them.

    Attributes:
        lengths: The one or two noisy tables of record lengths.
        rule: The rule, which follows from the lengths.
        whole: The noisy counts over records of at most ``cap`` items (N,).
        cut: The noisy counts over longer records, which were cut to ``cap`` items (N,).
        law: The law of the noise.
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
        """Return the estimated number of records with each of N items (N,): ``whole`` plus the factor times ``cut``.

        ``whole`` counts the item in records of at most ``cap`` items. ``cut`` counts it in longer records after they
        were cut to ``cap`` items, so the factor of ``rule`` makes up for the lost items. The estimates are unbiased
        except for the error of the factor.
        """
        return np.asarray(self.whole + float(self.rule.factor) * self.cut)

    @cached_property
    def variances(self) -> Reals:
        """Return the variance of each of N items' estimates (N,).

        It has three parts: the noise of the counts, the random choice of the items that longer records keep, and the
        error of the factor that makes up for the other items.
        """
        factor, noise = float(self.rule.factor), self.law.variance(self.rule.budget / self.rule.cap)
        cut = np.maximum(self.cut, 0.0)
        off = (factor * self.spread) ** 2 + float(self.rule.factor_variance)
        return noise * (1 + factor**2) + factor * (factor - 1) * cut + off * cut**2

    @cached_property
    def spread(self) -> float:
        """Return by how much the factors that single items need deviate from the common one, as a relative deviation.

        Longer records are cut to ``cap`` items. So an item's count in them (``cut``) is multiplied by a factor, the
        same for all items. But an item may be 2^t times as frequent in records of twice the length. Then the factor
        that it needs and its ratio of ``cut`` to ``whole`` (its count in shorter records) depend on t. So a typical t
        is estimated from how much these ratios differ between items beyond noise. That is the mean square of (cut - r
        whole), divided by that of r whole, with r = sum cut / sum whole. Items in nearly all records behave
        differently, so the result is at least a quarter of the relative deviation of longer lengths.
        """
        size, count = self._sizes
        longer = size > self.rule.cap
        if not (count[longer] > 0).any() or not (count[~longer] > 0).any():
            return 0.0
        long, short = np.maximum(count[longer], 0.0), np.maximum(count[~longer], 0.0)
        ratio = max(float(self.cut.sum()), 0.0) / max(float(self.whole.sum()), 1.0)
        noise = self.law.variance(self.rule.budget / self.rule.cap)
        drawn = (
            (1 + ratio) * ratio * np.maximum(self.whole, 0.0)
        )  # the variance that chance gives to items of single records
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
        """Return the mean length and the noisy count of each class of lengths, without the class of empty records.

        The counts of long classes that seem to hold no record (see ``find_tail``) are 0.
        """
        law = LengthLaw.read(self.lengths[-1], len(self.whole))
        return np.array(law.sizes[1:], dtype=np.float64), np.array(law.counts[1:], dtype=np.float64)

    def largest_items(self, number: int, without: Sequence[int] = ()) -> list[int]:
        """Return the codes of the items with the largest estimates, best first; ties are broken by code.

        The comparison is exact, in whole numbers.

        Args:
            number: How many items are returned.
            without: The codes of items that are left out.
        """
        parts = self.rule.factor.numerator, self.rule.factor.denominator
        score = self.cut * np.int64(parts[0]) + self.whole * np.int64(parts[1])
        order = np.argsort(-score, kind="stable")
        kept = order[~np.isin(order, np.array(without, dtype=np.int64))]
        return [int(code) for code in kept[:number]]


def measure_items(
    source: WeightedSets, lengths: Sequence[NoisyTable], rule: ItemRule, noise: TableNoise, draw: np.random.Generator
) -> ItemCounts:
    """Count all items with noise, and spend the budget of the rule.

    Args:
        source: The records, as item sets with their numbers.
        lengths: The noisy tables of record lengths.
        rule: The rule, which has the cap and the budget.
        noise: The generator of noise.
        draw: The generator that chooses the items that long records keep.
    """
    whole, cut = count_items_capped(source, rule.cap, draw)
    both = noise.add_noise(np.concatenate((whole, cut)), rule.budget / rule.cap)
    return ItemCounts(tuple(lengths), rule, both[: source.items], both[source.items :], lengths[0].law)
