"""How many of the records that are asked about have a value that is asked for, group by group.

Of the |g| records of a group s are asked about, by quasi-identifiers, and c = f |g| have a value that is asked for.
The release does not tell which: over all choices s f of them have both, the papers' estimate, with the variance of the
hypergeometric distribution. In real tables quasi-identifiers go with values inside of a group, too: where the
log-odds of being asked about differ by d between the records with these values and the others of the group,

    E = s f + d s (1 - s/|g|) f (1 - f),
    Var = s (|g| - s)/(|g| - 1) f (1 - f) + E[d^2] (s (1 - s/|g|) f (1 - f))^2.

No release tells anything of d. Between neighbouring groups g, h of the axis it tells the differences of s/|g|, about

    N(0, t^2 (q (1 - q))^2 + q (1 - q) (1/|g| + 1/|h|)),     q = (s_g + s_h) / (|g| + |h|),

and E[d^2] is taken as ``INSIDE`` times the posterior mean of t^2 over all neighbours. Incomes and working hours of the
American Community Survey, in narrow groups, ask for 1 to 2; where groups are so wide that all there is is a trend over
many of them, for less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.answers.channel import TINY

if TYPE_CHECKING:
    from privsql.answers.channel import Floats
    from privsql.mechanisms.permute.axis import Ints
    from privsql.mechanisms.permute.contents import Contents

INSIDE = 2.0
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


def unlike(held: Contents, met: Floats) -> Floats:
    """E[d^2] (R,) of sets that have ``met`` (R, B) records in every group."""
    one, other = neighbours(held)
    step = max(1, CHUNK // max(len(one), 1))
    parts = [_unlike(held.sizes, met[i : i + step], one, other) for i in range(0, len(met), step)]
    return np.concatenate(parts) if parts else np.zeros(0)


def _unlike(sizes: Ints, met: Floats, one: Ints, other: Ints) -> Floats:
    here, there = met[:, one], met[:, other]
    q = (here + there) / (sizes[one] + sizes[other])
    spread = q * (1 - q)  # 0 where all are asked about, or nobody: nothing is told
    noise = spread * (1 / sizes[one] + 1 / sizes[other])
    squares = (here / sizes[one] - there / sizes[other]) ** 2
    logs = -((np.log(STRENGTHS / USUAL) / SPREAD) ** 2)[:, None] * np.ones(len(met))
    for i, strength in enumerate(STRENGTHS):
        variance = np.where(spread > 0, strength**2 * spread**2 + noise, 1.0)
        logs[i] -= (np.log(variance) + np.where(spread > 0, squares, 0) / variance).sum(axis=1)
    weights = np.exp((logs - logs.max(axis=0)) / 2)
    return np.asarray(INSIDE * (STRENGTHS**2 @ weights) / weights.sum(axis=0))


def variances(held: Contents, met: Floats, functionals: Floats, second: Floats | None = None) -> Floats:
    """Of how many records have the values that ``functionals`` (m, F), or (R, m, F), name: per set (R, F).

    ``second`` (R,): of a sum over these records instead, the sum of squares of what is added; its mean is 0.
    """
    sizes, apart = held.sizes.astype(np.float64), unlike(held, met)[:, None]
    choices = met * (sizes - met) / np.maximum(sizes - 1, 1)
    deviating = (met * (1 - met / sizes)) ** 2
    if second is not None:
        each = (second / np.maximum(met.sum(axis=1), TINY))[:, None]
        choices, deviating = each * met, each * deviating
    if functionals.ndim > 2:
        rows = [_over(held, one) for one in functionals]
        parts = [choices[i] @ row + apart[i] * (deviating[i] @ row**2) for i, row in enumerate(rows)]
        return np.array(parts).reshape(len(met), functionals.shape[-1])
    open_ = _over(held, functionals)
    return np.asarray(choices @ open_ + apart * (deviating @ open_**2))


def _over(held: Contents, functionals: Floats) -> Floats:
    """F (1 - f) of every group (B, F)."""
    share = np.asarray(held.table @ functionals) / held.sizes[:, None]
    return np.asarray(share * (1 - share))
