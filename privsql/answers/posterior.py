"""From what a question saw of a release to the rows of its answer, whatever mechanism made the release.

The posterior of ``answers.reconstruct`` gives counts per sensitive value for each set of records that the question
distinguishes; they are moved to where counts can be, summed over the values and sets of each row of the answer, and
get an interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from privsql.answers.channel import Observation
from privsql.answers.counts import Bounds, counted, pooled
from privsql.answers.interval import intervals, whole, widened
from privsql.answers.question import CountQuery, group_terms, select_terms
from privsql.answers.seen import Observed, QuestionOn, chosen, dotted
from privsql.engine.sqlfiles import Holes, every, fill
from privsql.errors import UsageError
from privsql.model.estimate import Estimate, same_nan

if TYPE_CHECKING:
    from privsql.answers.channel import Floats

SURELY = 5  # standard errors
ROUNDING = 1e-6  # records
LARGE = 1e4  # beyond which a quotient of variances makes no difference


@dataclass(frozen=True)
class Level:
    """The confidence asked for, and the degrees of freedom behind a standard error."""

    confidence: float
    degrees: float = np.inf


def estimate(asked: QuestionOn, seen: Observed, confidence: float) -> list[Estimate]:
    """The answer's rows: estimates, standard errors and intervals, one per group that can be non-empty."""
    through, query = asked.through, asked.query
    outputs, functionals = chosen(asked, seen, len(through.records))
    if not seen.keys or not outputs:
        return nothing(query)
    if functionals.ndim > 2 and query.measure.amount is None:
        seen, functionals = pooled(query, seen, functionals)
        if not seen.keys:
            return nothing(query)
    parts = counted(asked, seen, functionals)
    level = Level(confidence, asked.degrees)
    return _collect(query, seen, outputs, (parts, _amounts(asked, seen, functionals)), level)


def collected(
    asked: QuestionOn,
    seen: Observed,
    outputs: list[tuple[Any, ...]],
    parts: Bounds,
    level: Level,
    amounts: Amounts | None = None,
) -> list[Estimate]:
    """Rows from estimates that come from elsewhere."""
    return _collect(asked.query, seen, outputs, (parts, amounts), level)


def nothing(query: CountQuery) -> list[Estimate]:
    """The answer where no record can match."""
    return [Estimate((), *query.measure.nothing)] if not query.groups else []


@dataclass(frozen=True)
class Measured:
    """What is added up of the sets, for SUM and AVG of a: how many records have it at all, the sum over them and of
    their (a - centre)^2, the centre of each set and the range of a, each (G,); ``deviations`` (G, k): e weighted by
    a - centre. The centre is the mean of a over the sets of one group of the answer.
    """

    size: Floats
    total: Floats
    second: Floats
    centre: Floats
    least: Floats
    most: Floats
    deviations: Floats


@dataclass(frozen=True)
class Amounts:
    """``of`` what; estimate and variance of the sum of a - centre per set and functional (G, F)."""

    of: Measured
    mean: Floats
    variance: Floats


def measured(asked: QuestionOn, seen: Observed) -> Measured | None:
    """The amounts of a question's sets, if it is about any."""
    query = asked.query
    if query.measure.amount is None:
        return None
    holes: Holes = {
        "qit": query.records(asked.records),
        "terms": select_terms(query, "qi"),
        "keys": [expression for _, expression in group_terms(query, "qi")],
        "filter": every(query.filters["qi"]),
        "amount": exp.cast(query.measure.amount, "DOUBLE"),
    }
    moments = {tuple(map(same_nan, row[:-5])): row[-5:] for row in asked.db.rows(fill("query/moments", holes))}
    size, total, squares, least, most = np.array([moments[key] for key in seen.keys], dtype=np.float64).T
    if not np.isfinite([total, squares]).all():
        raise UsageError(f"{query.measure.column} is not finite everywhere, or too large to be added up; see WHERE")
    own = sum(group.side == "qi" for group in query.groups)
    rank: dict[tuple[Any, ...], int] = {}
    member = np.array([rank.setdefault(key[:own], len(rank)) for key in seen.keys])
    centre = (np.bincount(member, total) / np.maximum(np.bincount(member, size), 1))[member]
    second = (squares - 2 * centre * total + centre**2 * size).clip(0)
    deviations = seen.amounts - centre[:, None] * seen.observed * (size > 0)[:, None]
    return Measured(size, total, second, centre, least, most, deviations)


def _amounts(asked: QuestionOn, seen: Observed, functionals: Floats) -> Amounts | None:
    """Reconstruct the sums of a - centre."""
    of = measured(asked, seen)
    if of is None:
        return None
    # Unlike counts, amounts differ within a value: their noise does not vanish where the set is everyone.
    weight, scale = of.second / asked.through.records.sum(), np.sqrt(of.size * of.second)
    sums = Observation(of.deviations, of.total - of.centre * of.size, scale, of.second, weight)
    found = asked.reconstruct(sums, functionals)
    return Amounts(of, dotted(found.values, functionals), found.std_error**2)


def _collect(
    query: CountQuery,
    seen: Observed,
    outputs: list[tuple[Any, ...]],
    answered: tuple[Bounds, Amounts | None],
    level: Level,
) -> list[Estimate]:
    """Sum the sets that fall into one group of the answer; their errors are independent."""
    counts, amounts = answered
    cells = places(query, seen, outputs, counts.most)
    if not query.groups and not cells.groups:
        return [Estimate((), *query.measure.nothing)]
    if amounts is None:
        return _counts(counts, cells, level)
    each = zip(cells.groups, cells.of_each(), strict=True)
    return [Estimate(group, *_amount(query, counts, amounts, at, level)) for group, at in each]


Figures = tuple[float | None, ...]  # of an Estimate, in its order
At = tuple[NDArray[np.intp], NDArray[np.intp]]  # sets and functionals, side by side


@dataclass(frozen=True)
class Cells:
    """Sets and functionals ``at`` (c,) side by side, and ``member`` (c,): which of the ``groups`` each is part of."""

    groups: list[tuple[Any, ...]]
    member: NDArray[np.intp]
    at: At

    def summed(self, part: Floats) -> Floats:
        """Sums of (G, F) over the cells of every group."""
        return np.asarray(np.bincount(self.member, part[self.at], len(self.groups)), dtype=np.float64)

    def of_each(self) -> list[At]:
        """The cells of every group."""
        if not self.groups:
            return []
        order = np.argsort(self.member, kind="stable")
        ends = np.cumsum(np.bincount(self.member, minlength=len(self.groups)))[:-1]
        sets, functionals = (np.split(part[order], ends) for part in self.at)
        return list(zip(sets, functionals, strict=True))


def places(query: CountQuery, seen: Observed, outputs: list[tuple[Any, ...]], most: Floats) -> Cells:
    """What every group of the answer is made of, where ``most`` (G, F) allows any record."""
    sides = [group.side for group in query.groups]
    own = sides.count("qi")
    rank: dict[tuple[Any, ...], int] = {}
    ranks = np.array([rank.setdefault(key[:own], len(rank)) for key in seen.keys], dtype=np.intp)
    at = np.nonzero(most > 0)
    met, member = np.unique(ranks[at[0]] * len(outputs) + at[1], return_inverse=True)
    keys = list(rank)

    def group(key: tuple[Any, ...], output: tuple[Any, ...]) -> tuple[Any, ...]:
        left, right = iter(key), iter(output)
        return tuple(next(left) if side == "qi" else next(right) for side in sides)

    pairs = (divmod(number, len(outputs)) for number in met.tolist())
    return Cells([group(keys[i], outputs[f]) for i, f in pairs], member, (at[0], at[1]))


def _counts(counts: Bounds, cells: Cells, level: Level) -> list[Estimate]:
    mean, least, most = (cells.summed(part) for part in (counts.mean, counts.least, counts.most))
    error = np.where(most > least, np.sqrt(cells.summed(counts.variance)), 0.0)
    mean = np.clip(mean, least, most)
    mean[np.abs(mean) < ROUNDING] = 0.0  # next to nobody is nobody: SQL makes NULL of that
    low, high = intervals(mean, error, level.confidence, _degrees(counts, cells, level))
    low, high = (np.where(error, *ends) for ends in zip(whole(low, high), (low, high), strict=True))
    low, high = np.minimum(mean, np.maximum(low, least)), np.maximum(mean, np.minimum(high, most))
    rows = zip(cells.groups, *(part.tolist() for part in (mean, error, low, high)), strict=True)
    return [Estimate(*row) for row in rows]


def _degrees(counts: Bounds, cells: Cells, level: Level) -> Floats:
    """Of freedom behind each error: nu (V / J)^2, nu those behind the part J that is judged (Satterthwaite 1946)."""
    whole = cells.summed(counts.variance)
    judged = whole if counts.judged is None else cells.summed(counts.judged)
    share = np.divide(whole, judged, out=np.full_like(whole, LARGE), where=judged * LARGE > whole)
    return level.degrees * np.maximum(share, 1.0) ** 2


def _amount(query: CountQuery, counts: Bounds, amounts: Amounts, at: At, level: Level) -> Figures:
    of = amounts.of
    known = of.size[at[0]] > 0
    at = (at[0][known], at[1][known])
    if not known.any():
        return query.measure.nothing
    centre, number = float(of.centre[at[0][0]]), max(float(counts.mean[at].sum()), 1e-9)
    spread, above = float(amounts.variance[at].sum()), float(amounts.mean[at].sum())
    counted = float(counts.variance[at].sum())
    if number + SURELY * counted**0.5 < 1 / 2:  # there is hardly any to add up
        return (*query.measure.nothing, 0.0)
    least, most = float(of.least[at[0]].min()), float(of.most[at[0]].max())
    if query.measure.kind == "sum":
        mean, variance = centre * number + above, centre**2 * counted + spread
        room = float(counts.most[at].sum())
        least, most = min(least * room, 0.0), max(most * room, 0.0)
    else:
        mean = centre + above / number
        variance = spread / number**2 + (above / number**2) ** 2 * counted
    error = float(np.sqrt(variance))
    reach = float(widened((1 - level.confidence) / 2, level.degrees))
    mean, width = min(max(mean, least), most), reach * error
    fewest = max(number - reach * counted**0.5, float(counts.least[at].sum()))
    return mean, min(error, (most - least) / 2), max(mean - width, least), min(mean + width, most), fewest
