"""Answers from a randomized release by the papers' formula.

In sub-table j, of |Res_j| records that meet the condition on quasi-identifiers o_j have a perturbed value among the s_j
asked for. Equation 7 and its variance for a true count f (independent perturbation of every record):

    f* = (o_j - |Res_j| s_j q_j)/p_j,
    Var f* = [f (p + s q)(1 - p - s q) + (|Res_j| - f) s q (1 - s q)]/p^2,

summed over the sub-tables. It uses nothing but the records asked about, so it is unbiased and can be negative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.answers.counts import Bounds
from privsql.answers.posterior import Level, collected, nothing
from privsql.answers.seen import chosen

if TYPE_CHECKING:
    from privsql.answers.channel import Floats
    from privsql.answers.seen import Observed, QuestionOn
    from privsql.mechanisms.randomize.public import Public
    from privsql.model.estimate import Estimate

FORMULA = "estimate = sum over sub-tables of (o - |Res| s q)/p (equation 7), s values asked for, o records with them"


def estimate(asked: QuestionOn, seen: Observed, public: Public, confidence: float) -> list[Estimate]:
    """The answer's rows, one per group that can be non-empty."""
    outputs, functionals = chosen(asked, seen, len(public.protected))
    if not seen.keys or not outputs:
        return nothing(asked.query)
    summed = tuple(np.zeros((len(seen.keys), len(outputs))) for _ in range(3))
    for j in range(len(public.records)):
        cells = np.flatnonzero(public.own == j)
        wanted = functionals[..., public.code[cells], :]
        own = _subtable(seen.observed[:, cells], wanted, float(public.retention[j]), float(public.replacement[j]))
        summed = tuple(total + part for total, part in zip(summed, own, strict=True))
    mean, variance, room = summed
    unbounded = np.full_like(mean, np.inf)
    parts = Bounds(mean, variance, -unbounded, np.where(room > 0, unbounded, 0))
    return collected(asked, seen, outputs, parts, Level(confidence))


def _subtable(observed: Floats, wanted: Floats, p: float, q: float) -> tuple[Floats, Floats, Floats]:
    """f*, its variance, and the number s of values asked for in this sub-table, each (G, F)."""
    found = np.asarray(np.einsum("gc,gcf->gf", observed, np.broadcast_to(wanted, (len(observed), *wanted.shape[-2:]))))
    totals = observed.sum(axis=1)[:, None]
    s = np.broadcast_to(wanted.sum(axis=-2), found.shape)
    estimate = (found - totals * s * q) / p
    f = np.clip(estimate, 0, totals)
    inside, outside = p + s * q, s * q
    variance = (f * inside * (1 - inside) + (totals - f) * outside * (1 - outside)) / p**2
    none = s == 0
    return np.where(none, 0, estimate), np.where(none, 0, variance), np.where(none, 0, s)
