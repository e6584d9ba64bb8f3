"""Counts of the sets of records that a question distinguishes: reconstructed, possible, and fitting each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from privsql.answers.channel import TINY, Observation
from privsql.answers.interval import within
from privsql.answers.raking import Margin, adding_up, raked
from privsql.answers.seen import Observed, QuestionOn, dotted

if TYPE_CHECKING:
    from privsql.answers.channel import Floats
    from privsql.answers.question import CountQuery
    from privsql.answers.reconstruct import Posterior

TURNS = 5  # of sums over rows and over columns


@dataclass(frozen=True)
class Bounds:
    """Per set and functional (G, F): estimate, variance, and the range in which the truth must lie.

    ``judged``: the part of the variance that is itself judged by what was seen; None for all of it.
    """

    mean: Floats
    variance: Floats
    least: Floats
    most: Floats
    judged: Floats | None = None


def counted(asked: QuestionOn, seen: Observed, functionals: Floats) -> Bounds:
    """Counts of every set by the values that ``functionals`` (m, F), or (G, m, F), name."""
    counts, found = _reconstructed(asked, seen.observed, functionals)
    parts = _raked(asked, seen, functionals, _counted(asked, found, functionals, counts.total))
    return _added_up(asked, seen, functionals, parts)


def _reconstructed(asked: QuestionOn, observed: Floats, functionals: Floats) -> tuple[Observation, Posterior]:
    """The sets as they were seen, and their posterior where counts can be."""
    totals = observed.sum(axis=1)
    counts = Observation(observed, totals, totals, totals, asked.noise(totals / asked.through.records.sum()))
    return counts, _within(asked, counts, asked.reconstruct(counts, functionals))


def _raked(asked: QuestionOn, seen: Observed, functionals: Floats, parts: Bounds) -> Bounds:
    """The counts of a table by several quasi-identifiers, with an eye on what each of these says alone."""
    query, totals = asked.query, seen.observed.sum(axis=1)
    groups = [group for group in query.groups if group.side == "qi"]
    if len(groups) < 2 or functionals.ndim > 2 or query.measure.amount is not None:
        return parts
    margins = []
    for i, group in enumerate(groups):
        rank: dict[Any, int] = {}
        member = np.array([rank.setdefault(key[i], len(rank)) for key in seen.keys])
        observed = np.zeros((len(rank), seen.observed.shape[1]))
        np.add.at(observed, member, seen.observed)
        alone = replace(asked, query=replace(query, groups=(group,)))
        _, found = _reconstructed(alone, observed, functionals)
        margins.append(Margin(member, dotted(found.values, functionals)))
    mean = np.clip(raked(parts.mean, parts.variance, margins), parts.least, parts.most)
    if (functionals.sum(axis=1) == 1).all():  # every record counts once
        mean = within(mean, totals, parts.most, parts.variance.mean(axis=0) + TINY)
    return replace(parts, mean=mean)


def _added_up(asked: QuestionOn, seen: Observed, functionals: Floats, parts: Bounds) -> Bounds:
    """Counts by quasi-identifiers that sum to the answer of the same question without these groups."""
    if len(seen.keys) < 2 or functionals.ndim > 2 or asked.query.measure.amount is not None:
        return parts
    sides = tuple(group for group in asked.query.groups if group.side != "qi")
    alone = replace(asked, query=replace(asked.query, groups=sides))
    _, found = _reconstructed(alone, seen.observed.sum(axis=0, keepdims=True), functionals)
    wanted, mean = dotted(found.values, functionals)[0], parts.mean
    once, totals = (functionals.sum(axis=1) == 1).all(), seen.observed.sum(axis=1)
    for _ in range(TURNS if once else 1):  # every record counts once: rows and columns have sums that are known
        if once:
            mean = within(mean, totals, parts.most, parts.variance.mean(axis=0) + TINY)
        mean = adding_up(mean, wanted, (parts.least, parts.most), parts.variance)
    return replace(parts, mean=mean)


def pooled(query: CountQuery, seen: Observed, functionals: Floats) -> tuple[Observed, Floats]:
    """One set for all records of a group that are asked for the same values, however the question puts it; none for
    those that are asked for no value. The values are told once where they are the same for all.

    Each set would be drawn to the overall shares by itself: ten small ones together by more than their union.
    """
    own = sum(group.side == "qi" for group in query.groups)
    rank: dict[tuple[Any, ...], int] = {}
    keys = ((*key[:own], asked.tobytes()) for key, asked in zip(seen.keys, functionals, strict=True))
    member = np.array([rank.setdefault(key, len(rank)) for key in keys])
    observed = np.zeros((len(rank), seen.observed.shape[1]))
    np.add.at(observed, member, seen.observed)
    _, first = np.unique(member, return_index=True)
    kept = np.flatnonzero(functionals[first].any(axis=(1, 2)))
    asked = functionals[first][kept]
    names = [key[:-1] for key in rank]
    pooled = Observed([names[i] for i in kept], observed[kept], np.zeros((len(kept), observed.shape[1])))
    same = len(kept) and (asked == asked[0]).all()
    return pooled, asked[0] if same else asked


def _within(asked: QuestionOn, seen: Observation, found: Posterior) -> Posterior:
    """The posterior mean moved to where counts can be: between 0 and o_i and |Q|, summing to |Q|."""
    through = asked.through
    caps = np.minimum(asked.ceiling, seen.total[:, None])
    values = within(found.values, seen.total, caps, through.spread + through.shares)
    return replace(found, values=values)


def _counted(asked: QuestionOn, found: Posterior, functionals: Floats, totals: Floats) -> Bounds:
    """Counts: no more than the set has records or the release has of the values, no fewer than the others leave."""
    held, others = _held(asked.ceiling, found.values.shape, functionals)
    most = np.minimum(totals[:, None], held)
    variance = found.std_error**2
    if asked.uncertain is not None:
        share = totals / asked.through.records.sum()
        variance = variance + share[:, None] ** 2 * np.minimum(*_held(asked.uncertain, found.values.shape, functionals))
    return Bounds(dotted(found.values, functionals), variance, (totals[:, None] - others).clip(0), most)


def _held(values: Floats, shape: tuple[int, ...], functionals: Floats) -> tuple[Floats, Floats]:
    """Sums of ``values`` (m,) over the values that count and over those that do not, each (G, f)."""
    spread = np.broadcast_to(values, shape)
    return dotted(spread, functionals), dotted(spread, 1 - functionals)
