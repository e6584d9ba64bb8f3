"""COUNT by the papers' formula, with bounds that hold with certainty.

est = sum_g n_g c_g / |g|: n_g records of the group meet the condition on quasi-identifiers, c_g that on the sensitive
column. At least n_g + c_g - |g| and at most min(n_g, c_g) meet both. Where the range that is asked for holds a group's
values all or none, nothing is uncertain about the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.answers.counts import Bounds
from privsql.answers.posterior import nothing, places
from privsql.answers.seen import chosen
from privsql.model.estimate import Estimate

if TYPE_CHECKING:
    from privsql.answers.channel import Floats
    from privsql.answers.seen import Observed, QuestionOn
    from privsql.mechanisms.permute.contents import Contents

FORMULA = "estimate = sum over groups g of n_g * c_g / |g|; low and high are certain"


def parts(held: Contents, met: Floats, functionals: Floats) -> Bounds:
    """Estimates and certain bounds per set and functional (G, F); ``met`` (G, B): records of each set by group."""
    table, sizes = held.table, held.sizes.astype(np.float64)
    least, most = (np.zeros((len(met), functionals.shape[-1])) for _ in range(2))
    alike = np.asarray(table @ functionals) if functionals.ndim == 2 else None
    for g, own in enumerate(met):
        count = alike if alike is not None else np.asarray(table @ functionals[g])
        at = np.flatnonzero(own)
        n, c, size = own[at, None], count[at], sizes[at, None]
        least[g] = np.maximum(n + c - size, 0).sum(axis=0)
        most[g] = np.minimum(n, c).sum(axis=0)
    return Bounds(shared(held, met, functionals), np.zeros_like(least), least, most)


def shared(held: Contents, seen: Floats, functionals: Floats) -> Floats:
    """What is ``seen`` (G, B) in every group, shared out over its records, summed over the values that count (G, F)."""
    each = seen / held.sizes
    if functionals.ndim == 2:
        return np.asarray(each @ (held.table @ functionals))
    return np.array([one @ (held.table @ own) for one, own in zip(each, functionals, strict=True)])


def estimate(asked: QuestionOn, held: Contents, seen: Observed) -> list[Estimate]:
    """The answer's rows, one per group that can be non-empty; a single row without GROUP BY."""
    outputs, functionals = chosen(asked, seen, held.values)
    if not seen.keys or not outputs:
        return nothing(asked.query)
    counts = parts(held, seen.observed, functionals)
    cells = places(asked.query, seen, outputs, counts.most)
    mean, least, most = (cells.summed(part).tolist() for part in (counts.mean, counts.least, counts.most))
    found = [
        Estimate(group, middle, 0.0 if low == high else None, low, high)
        for group, middle, low, high in zip(cells.groups, mean, least, most, strict=True)
    ]
    return found or nothing(asked.query)
