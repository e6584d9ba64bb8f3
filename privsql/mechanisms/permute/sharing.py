"""How many of the records that are asked about have a value that is asked for, group by group.

Of the |g| records of a group s are asked about, by quasi-identifiers, and c = f |g| have a value that is asked for.
The release does not tell which: over all choices s f of them have both, the papers' estimate, with the variance of the
hypergeometric distribution. In real tables quasi-identifiers go with values inside of a group, too: where the
log-odds of being asked about differ by d between the records with these values and the others of the group,

    E = s f + d s (1 - s/|g|) f (1 - f),
    Var = s (|g| - s)/(|g| - 1) f (1 - f) + E[d^2] (s (1 - s/|g|) f (1 - f))^2.

No release tells anything of d. Between neighbouring groups g, h of the axis it tells the differences of s/|g|, about

    N(0, v (q (1 - q))^2 + q (1 - q) (1/|g| + 1/|h|)),     q = (s_g + s_h) / (|g| + |h|),

v_1, and v_2 between those that are two apart, being the posterior means over all pairs. Where each value is what it
is by itself, v_2 = v_1, and d is of variance v_1 / (2 f (1 - f)). Where all there is is a trend that wanders along the
axis, v_1 and v_2 are 2/3 and 5/3 of what it wanders over a group, and d of a third of it. So

    E[d^2] = n / (f (1 - f)) + b/3,     b = v_2 - v_1,     n = (v_1 - 2/3 b)/2,     none below 0.

What is added up, less its mean over all who are asked about, is treated alike: its means in groups differ by
N(0, t^2 v + v (1/s_g + 1/s_h)) between neighbours, v its variance, and by N(0, E[d^2] v) inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from privsql.answers.channel import Floats
    from privsql.answers.posterior import Measured
    from privsql.mechanisms.permute.axis import Ints
    from privsql.mechanisms.permute.contents import Contents

    Sizes = tuple[Ints, Ints]
    Differences = tuple[Floats, Floats, Floats]  # squares, of N(0, t^2 spread + noise), spread, noise; each (R, P)

DEGREES = 8  # of freedom behind a standard error: groups differ in how much their values do
STRENGTHS = np.geomspace(0.02, 5.0, 24)  # t
USUAL, SPREAD = 0.2, 1.0  # median of t before anything is seen, and standard deviation of its logarithm
CHUNK = 2**20  # numbers that one array may hold


def neighbours(held: Contents) -> tuple[Ints, Ints]:
    """Groups g and, of each, the one h that begins next after all of its values; none for the last ones."""
    first = np.full(held.groups, held.values)
    last = np.full(held.groups, -1)
    np.minimum.at(first, held.group, held.code)
    np.maximum.at(last, held.group, held.code)
    order = np.argsort(first, kind="stable")
    place = np.searchsorted(first[order], last, side="right")
    some = np.flatnonzero(place < held.groups)
    return some, order[place[some]]


@dataclass(frozen=True)
class Apart:
    """E[d^2] = ``rough`` / (f (1 - f)) + ``smooth``, each (R,), of R sets of records."""

    rough: Floats
    smooth: Floats

    @staticmethod
    def of(near: Floats, far: Floats) -> Apart:
        """By v_1 and v_2."""
        wandered = np.maximum(far - near, 0)
        return Apart(np.maximum(near - 2 / 3 * wandered, 0) / 2, wandered / 3)


def unlike(held: Contents, met: Floats) -> Apart:
    """How unlike the values of a group are, of sets that have ``met`` (R, B) records in every group."""

    def told(sizes: Sizes, here: Floats, there: Floats) -> Differences:
        one, other = sizes
        q = (here + there) / (one + other)
        spread = q * (1 - q)  # 0 where all are asked about, or nobody: nothing is told
        return (here / one - there / other) ** 2, spread**2, spread * (1 / one + 1 / other)

    return _judged(held, told, met)


def unlike_amounts(held: Contents, met: Floats, deviations: Floats, variance: Floats) -> Apart:
    """The same of sums ``deviations`` (R, B) of what is added up, less its mean, with ``variance`` (R,)."""

    def told(
        _: Sizes, here: Floats, there: Floats, sum_here: Floats, sum_there: Floats, v: Floats, __: Floats
    ) -> Differences:
        v = np.where((here > 0) & (there > 0), v, 0.0)
        here, there = np.maximum(here, 1), np.maximum(there, 1)
        return (sum_here / here - sum_there / there) ** 2, v, v * (1 / here + 1 / there)

    return _judged(held, told, met, deviations, np.broadcast_to(variance[:, None], met.shape))


def _judged(held: Contents, told: Callable[..., Differences], *parts: Floats) -> Apart:
    """By the differences that ``told`` makes of ``parts`` (R, B), each of both groups, of some sets at a time."""
    one, other = neighbours(held)
    following = np.full(held.groups, -1)
    following[one] = other
    beyond = following[other]
    found = []
    for pairs in ((one, other), (one[beyond >= 0], beyond[beyond >= 0])):
        step, strengths = max(1, CHUNK // max(len(pairs[0]), 1)), [np.zeros(0)]
        sizes = tuple(held.sizes[side] for side in pairs)
        for start in range(0, len(parts[0]), step):
            some = [part[start : start + step] for part in parts]
            strengths.append(_strength(*told(sizes, *(part[:, side] for part in some for side in pairs))))
        found.append(np.concatenate(strengths))
    return Apart.of(*found)


def _strength(squares: Floats, spread: Floats, noise: Floats) -> Floats:
    """E[t^2 | squares of N(0, t^2 spread + noise)] of every row; where ``spread`` is 0 nothing is told."""
    logs = -((np.log(STRENGTHS / USUAL) / SPREAD) ** 2)[:, None] * np.ones(len(squares))
    for i, strength in enumerate(STRENGTHS):
        variance = np.where(spread > 0, strength**2 * spread + noise, 1.0)
        logs[i] -= (np.log(variance) + np.where(spread > 0, squares, 0) / variance).sum(axis=1)
    weights = np.exp((logs - logs.max(axis=0)) / 2)
    return np.asarray((STRENGTHS**2 @ weights) / weights.sum(axis=0))


def variances(held: Contents, met: Floats, functionals: Floats) -> tuple[Floats, Floats]:
    """Of how many records have the values that ``functionals`` (m, F), or (R, m, F), name: per set (R, F), and the part
    of it that is judged by neighbouring groups.
    """
    sizes = held.sizes.astype(np.float64)
    choices = met * (sizes - met) / np.maximum(sizes - 1, 1)
    known = _summed(held, functionals, choices, np.zeros_like(choices))
    apart, moved = unlike(held, met), (met * (1 - met / sizes)) ** 2
    judged = _summed(held, functionals, apart.rough[:, None] * moved, apart.smooth[:, None] * moved)
    return known + judged, judged


def variances_of_amounts(held: Contents, met: Floats, functionals: Floats, added: Measured) -> Floats:
    """Of the sums of what is ``added`` up, less its mean, over these records (R, F)."""
    variance = added.second / np.maximum(met.sum(axis=1), 1)
    apart, v = unlike_amounts(held, met, added.deviations, variance), variance[:, None]
    rough, smooth = (part[:, None] * v * met**2 for part in (apart.rough, apart.smooth))
    return _summed(held, functionals, v * met + rough, smooth)


def _summed(held: Contents, functionals: Floats, choices: Floats, deviating: Floats) -> Floats:
    """Sums over groups of ``choices`` f (1 - f) and ``deviating`` (f (1 - f))^2, both (R, B)."""
    if functionals.ndim > 2:
        rows = [_over(held, one) for one in functionals]
        parts = [choices[i] @ row + deviating[i] @ row**2 for i, row in enumerate(rows)]
        return np.array(parts).reshape(len(choices), functionals.shape[-1])
    over = _over(held, functionals)
    return np.asarray(choices @ over + deviating @ over**2)


def _over(held: Contents, functionals: Floats) -> Floats:
    """F (1 - f) of every group (B, F)."""
    share = np.asarray(held.table @ functionals) / held.sizes[:, None]
    return np.asarray(share * (1 - share))
