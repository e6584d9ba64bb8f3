"""What is measured, and with which budgets: a public rule, in exact fractions.

All items are measured where there are few (``TINY_UNIVERSE``). Half of the budget goes to views, sets of 8 items that
together hold all pairs, in equal parts, half to the table of all 2^m patterns. Of more items some are chosen first
(``choosing``), and what is left goes to views over these. Sets of items that the publisher declared get tables of their
own, as far as that lowers the mean standard error of how many records hold all items of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from privsql.dpnoise import variance_of
from privsql.mechanisms.setvalued.views.covering import covering
from privsql.mechanisms.setvalued.views.patterns import among, inside, pattern, sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.noisytables.measured import Clique, Reals

VIEW = 8  # items of a view
LARGEST_TABLE = 10  # items of a declared set that gets a table of its own
QUARTERS = tuple(Fraction(k, 4) for k in range(1, 4))
GAIN = 1e-9  # by which a split of the budget must be better than the one before
Layout = list[tuple["Clique", Fraction]]


@dataclass(frozen=True)
class Split:
    """Parts of a budget: ``declared`` of all of it, ``views`` of what is left."""

    declared: Fraction
    views: Fraction


HALVES = Split(Fraction(0), Fraction(1, 2))


def of_all(items: int, epsilon: Fraction, declared: Sequence[Clique] = ()) -> Layout:
    """Tables over all items of a small universe: (places, budget); the budgets add up to ``epsilon``.

    With ``declared`` sets the split of the budget is the first one of the smallest mean standard error among quarters.
    """
    if items <= VIEW:
        return [(tuple(range(items)), epsilon)]
    if not declared:
        return _split(items, epsilon, (), HALVES)
    own = tables_of(declared)
    splits = [
        HALVES,
        *(Split(part, views) for part in (Fraction(0), *QUARTERS) if own or not part for views in QUARTERS),
    ]
    best, least = HALVES, np.inf
    for split in splits:
        found = mean_error(items, _split(items, epsilon, own, split), declared)
        if found < least * (1 - GAIN):
            best, least = split, found
    return _split(items, epsilon, own, best)


def of_chosen(items: int, epsilon: Fraction, declared: Sequence[Clique] = ()) -> Layout:
    """The same over items chosen from a large universe: half for declared sets, if any, the rest for views."""
    own = tables_of(declared)
    return _split(items, epsilon, own, Split(Fraction(1, 2) if own else Fraction(0), Fraction(1)))


def tables_of(declared: Sequence[Clique]) -> list[Clique]:
    """The declared sets that get tables: not too long, and not inside another one."""
    short = [one for one in dict.fromkeys(declared) if len(one) <= LARGEST_TABLE]
    return [one for one in short if not any(set(one) < set(other) for other in short)]


def mean_error(items: int, layout: Layout, declared: Sequence[Clique]) -> float:
    """Mean standard error of the numbers of records that hold all items of each declared set."""
    precision: Reals = np.zeros(1 << items)
    for places, epsilon in layout:
        precision[among(places, items)] += 1 / (variance_of(epsilon) * 2 ** len(places))
    variance = inside(1 / precision) * 0.25 ** sizes(items)
    return float(np.sqrt(variance[[pattern(one, items) for one in declared]]).mean())


def _split(items: int, epsilon: Fraction, own: Sequence[Clique], split: Split) -> Layout:
    found = [(one, epsilon * split.declared / len(own)) for one in own if split.declared]
    left = epsilon * (1 - split.declared)
    views = covering(items, VIEW)
    found += [(view, left * split.views / len(views)) for view in views]
    whole = left * (1 - split.views)
    return [*found, (tuple(range(items)), whole)] if whole else found
