"""Intervals of answers: from the exact error of least squares, or bounds where no table tells all that is asked.

A question over the items A that no table holds together lies, pattern by pattern, between what it is at least and at
most when the items outside of a view are left open; both are questions over the view's own items, with exact errors.
The best of these bounds over all views hold together at the stated confidence, each at an equal part of what is left
of 1 (Bonferroni). Of an item that was not chosen it is known that at most ``beyond`` records have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from privsql.mechanisms.setvalued.views.patterns import among, transformed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.noisytables.measured import Reals
    from privsql.mechanisms.setvalued.views.squares import Error, Squares


LIMIT = 1.5  # standard errors


def normal(confidence: float) -> float:
    """The quantile of the normal distribution that is exceeded on either side with what is left of 1.

    >>> round(normal(0.95), 2)
    1.96
    """
    return -float(ndtri((1 - confidence) / 2))


def half_width(error: Error, doubt: float) -> float:
    """How far an answer may lie from the truth on one side, but for a chance of ``doubt``.

    A sum of Laplace noise lies between one count, whose quantile is -ln(2 doubt)/sqrt(2) standard deviations, and very
    many, whose quantile is the normal one: the larger of both, and half a step of the grid on which sums of few whole
    numbers lie.
    """
    if not error.deviation:
        return 0.0
    quantile = max(-float(ndtri(doubt)), -float(np.log(2 * doubt)) / np.sqrt(2))
    return float(error.deviation * quantile + error.step / 2)


def direct(squares: Squares, chosen: Sequence[int], question: Reals, doubt: float) -> tuple[float, float, float] | None:
    """Standard error, low and high of a question that the tables tell; None for any other.

    ``doubt``: the chance that the truth lies beyond low, and that it lies beyond high.
    """
    error = squares.error(chosen, question)
    if not np.isfinite(error.deviation):
        return None
    found, far = answer(squares.value, squares.items, chosen, question), half_width(error, doubt)
    return error.deviation, max(found - far, 0.0), max(found + far, 0.0)


def answer(spectrum: Reals, items: int, chosen: Sequence[int], question: Reals) -> float:
    """The answer to a question over the patterns of the items at ``chosen`` from a spectrum of parities (2^m,)."""
    return float(spectrum[among(chosen, items)] @ transformed(question)) / len(question)


def limited(far: Reals | float, deviation: Reals | float) -> Reals:
    """How far an estimate may lie from that of least squares, of which this is the standard ``deviation``.

    Whoever leans on what is common to many answers may be far off in a single one that differs: no estimate is moved
    by more than ``LIMIT`` of what noise makes of it (limited translation: Efron & Morris, JASA 1972).
    """
    return np.clip(far, -LIMIT * np.asarray(deviation), LIMIT * np.asarray(deviation))


def leaning(squares: Squares, part: Reals, chosen: Sequence[int], question: Reals, far: float) -> tuple[float, float]:
    """How far an estimate that would lie ``far`` from that of least squares does lie from it, and its standard error.

    With s^2 = sum of F_q^2 v_q / 4^k, and c the same with the ``part`` of v_q that estimates keep (``model.spectrum``),
    far^2 is expected to be s^2 - c and the estimate's variance c; what is beyond that is added. Where it has to be
    ``limited`` nothing but s and the limit is known of its error.
    """
    wanted, at = transformed(question) / len(question), among(chosen, squares.items)
    variance = np.divide(wanted**2, squares.precision[at], out=np.zeros_like(wanted), where=squares.precision[at] > 0)
    whole, kept = float(variance.sum()), float((variance * part[at]).sum())
    most = float(limited(far, np.sqrt(whole)))
    if most != far:
        return most, float(np.hypot(np.sqrt(whole), most))
    return far, float(np.sqrt(kept + max(far**2 - (whole - kept), 0.0)))


def between(squares: Squares, chosen: Sequence[int], least: Reals, most: Reals, doubt: float) -> tuple[float, float]:
    """Bounds of a question that lies between two others, pattern by pattern, but for a chance of ``doubt``."""
    parts = dict.fromkeys(tuple(place for place in chosen if place in one.columns) for one in squares.tables)
    own = [one for one in parts if not any(set(one) < set(other) for other in parts)]
    low, high = 0.0, np.inf
    for part in own:
        axes = tuple(axis for axis, place in enumerate(chosen) if place not in part)
        shape = (2,) * len(chosen)
        for question, lower in (
            (least.reshape(shape).min(axis=axes), True),
            (most.reshape(shape).max(axis=axes), False),
        ):
            found = direct(squares, part, question.reshape(-1), doubt / (2 * len(own)))
            if found is not None and lower:
                low = max(low, found[1])
            elif found is not None:
                high = min(high, found[2])
    return low, max(low, high)
