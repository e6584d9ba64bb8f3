"""Estimate the rows of an answer, with intervals, from sets of records: one set for each combination of the groups."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import scipy
from numpy.typing import NDArray
from sqlglot import exp

from privsql.answers.channel import TINY, Channel, Floats, LinearEstimator, Observation, Posterior, reconstruct
from privsql.answers.learned_prior import DEGREES, TaughtPrior
from privsql.answers.sql.question import CountQuery, condition_holes, group_terms, select_terms
from privsql.engine.sqlfiles import Holes, all_of, column, fill, table, temp_table
from privsql.errors import UsageError
from privsql.model.arrays import as_doubles
from privsql.model.estimates import Estimate, same_nan

if TYPE_CHECKING:
    from collections.abc import Callable

    from privsql.engine.database import Relations

# Interval -------------------------------------------------------------------------------------------------------------


RELATIVE = 1e-15  # error of sums in doubles, relative to the sum
CERTAIN = 1e-9  # variance of a count that is hardly to be moved


def project_within(values: Floats, total: Floats, caps: Floats, give: Floats) -> Floats:
    """Make estimated counts agree with a known total: move each row into [0, caps] so that it sums to ``total``.

    Rows change as little as possible. Each value v becomes clip(v - t give, 0, cap), with the same t for the whole row.
    This is the nearest such point if the squared distance of each value is divided by ``give``. As the sum is piecewise
    linear in t, Newton's method finds t; a step out of the range where t must lie, and every third step, is a
    bisection.

    Args:
        values: The values (G, m).
        total: The wanted sum of each row (G,).
        caps: The upper limits of the values (G, m).
        give: How easily each value moves relative to the others (m,) or (G, m), above 0.
    """
    low = ((values - caps) / give).min(axis=1) - 1
    high = (values / give).max(axis=1) + 1
    close = RELATIVE * (np.abs(total) + np.abs(values).sum(axis=1))
    at = np.clip(np.zeros(len(values)), low, high)
    for step in range(150):
        moved = values - at[:, None] * give
        placed = np.clip(moved, 0, caps)
        excess = placed.sum(axis=1) - total
        if (np.abs(excess) <= close).all():
            break
        low, high = np.where(excess > 0, at, low), np.where(excess > 0, high, at)
        slope = ((placed == moved) * give).sum(axis=1)
        reached = at + np.divide(excess, slope, out=np.full_like(at, np.inf), where=slope > 0)
        newton = (reached > low) & (reached < high) & (step % 3 != 2)
        at = np.where(np.abs(excess) <= close, at, np.where(newton, reached, (low + high) / 2))
    return np.asarray(placed)


def count_interval(mean: float, std_error: float, confidence: float, degrees: float = np.inf) -> tuple[float, float]:
    """Return the lower and upper bound of one count, which can't be negative, at a confidence.

    Args:
        mean: The estimate.
        std_error: Its standard error; if it is 0, both bounds are the estimate.
        confidence: The probability that the interval holds the truth.
        degrees: The degrees of freedom of the standard error; infinite for the normal quantile.
    """
    low, high = count_intervals(np.array([mean], dtype=np.float64), np.array([std_error]), confidence, degrees)
    return float(low[0]), float(high[0])


def count_intervals(
    mean: Floats, std_error: Floats, confidence: float, degrees: float | Floats = np.inf
) -> tuple[Floats, Floats]:
    """Return the lower and upper bounds of counts at a confidence.

    The bounds are mean - t s and mean + t s, with Student's quantile t for ``degrees`` of freedom, since the errors are
    themselves estimated. A count can't be negative, so where the error is as large as the mean the distribution leans
    to the right. The upper bound is therefore at least the quantile of a gamma distribution with that mean and spread.
    Where the lower bound is 0, the whole probability outside of the interval lies above it.

    Args:
        mean: The estimates.
        std_error: Their standard errors s; where one is 0, both bounds are the estimate.
        confidence: The probability that the interval holds the truth.
        degrees: Degrees of freedom; infinite for the normal quantile.
    """
    tail = (1 - confidence) / 2
    quantile = student_quantile(tail, degrees)
    spread = np.where(std_error, std_error, 1.0) * quantile / -float(scipy.special.ndtri(tail))
    centre = np.maximum(mean, 1e-6)
    shape = np.clip((centre / spread) ** 2, 0.02, 1e7)
    above = np.where(mean > quantile * std_error, tail, 2 * tail)
    skewed = scipy.special.gammaincinv(shape, 1 - above) * centre / shape
    low, high = np.maximum(mean - quantile * std_error, 0.0), np.maximum(mean + quantile * std_error, skewed)
    return np.where(std_error, low, mean), np.where(std_error, high, mean)


def round_bounds(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Round the bounds of counts to whole numbers, so that the interval keeps its probability.

    The estimate has a continuous distribution, in which a whole number c stands for the range from c - 1/2 to c + 1/2.
    So the rounded interval holds all whole numbers whose range touches [low, high].
    """
    return np.ceil(low - 1 / 2), np.floor(high + 1 / 2)


def student_quantile(tail: float, degrees: float | Floats) -> Floats:
    """Return the quantile of Student's distribution that is exceeded with probability ``tail``.

    For infinite ``degrees`` of freedom it is the normal quantile.
    """
    known = np.isinf(degrees)
    return np.where(known, -scipy.special.ndtri(tail), scipy.special.stdtrit(np.where(known, 1.0, degrees), 1 - tail))


# Totals ---------------------------------------------------------------------------------------------------------------
# The cells of a table are moved so that they add up to the answer to the same question without groups. Each cell takes
# a part of the difference in proportion to its error, within its bounds.


def fit_sums(cells: Floats, wanted: Floats, bounds: tuple[Floats, Floats], errors: Floats) -> Floats:
    """Move the cells of a table so that its columns have the wanted sums, such as the answers without GROUP BY.

    Each cell takes a part of the difference in proportion to its error, within its bounds.

    Args:
        cells: The counts (G, f).
        wanted: The wanted sum of each column (f,); it is reached as far as the bounds allow.
        bounds: The lower and the upper bounds of the cells, each (G, f).
        errors: The standard errors of the cells (G, f).
    """
    least, most = bounds
    beyond, room = (wanted - least.sum(axis=0)).clip(0), (most - least).clip(0)
    return np.asarray(project_within((cells - least).T, beyond, room.T, errors.T + TINY).T + least)


# Sets of records ------------------------------------------------------------------------------------------------------

FEWEST_DEGREES = 4  # the least degrees of freedom, used where there are hardly any values


@dataclass(frozen=True)
class RecordSets:
    """The G sets of records that a question distinguishes by quasi-identifiers.

    Attributes:
        keys: For each set, the values by which its records agree: those of GROUP BY, then those of conditions that also
            depend on sensitive columns.
        observed: e (G, k), the published values added up over each set.
        amounts: The same sums, with each record weighted by the amount that SUM or AVG adds up (G, k).
    """

    keys: list[tuple[Any, ...]]
    observed: Floats
    amounts: Floats


@dataclass(frozen=True)
class ReleaseQuestion:
    """A question to an open release, with all that is needed to estimate its answer.

    A prior says, before the answer, how far the shares of sensitive values in a set of records may deviate from those
    of all records.

    Attributes:
        db: The engine in which the release is open.
        query: The question.
        records: The published table with the quasi-identifiers.
        channel: The matrix by which counts of m sensitive values become k published values on average
            (``answers.channel``).
        independent: True if each record's published value was drawn by itself, as in perturbation. False if records
            took places without replacement, as in buckets.
        most: The largest number of records that each value can have (m,); None for the channel's ``records``.
        uncertain: The variances of the channel's ``records`` where these are estimates (m,); None if they are exact.
        taught: The prior that was learnt from the release; None for the default one.
        linear: The estimator that adds up weights of records, if the user asks for it; None for another estimator.
        code: The name of the column that numbers the sensitive values, in the published list of these.
    """

    db: Relations
    query: CountQuery
    records: exp.Table
    channel: Channel
    independent: bool = False
    most: Floats | None = None
    uncertain: Floats | None = None
    taught: TaughtPrior | None = None
    linear: LinearEstimator | None = None
    code: str = "code"

    @property
    def selecting_columns(self) -> set[str]:
        """Return the names of the release's columns by which the question selects, groups and joins records."""
        query = self.query
        parts = [*query.filters["qi"], *(expression for _, expression in group_terms(query, "qi"))]
        names = {node.name for part in parts for node in part.find_all(exp.Column)}
        return names | {name for lookup in query.lookups for _, name in lookup.keys}

    def reconstruct(self, observation: Observation, functionals: Floats) -> Posterior:
        """Estimate how many records of each of G sets have each of m sensitive values.

        The linear estimator does it if there is one, otherwise the prior that was learnt, otherwise the default prior.

        Args:
            observation: The published values of the sets, and their known totals.
            functionals: The weights of the values in each of F sums of counts whose standard errors are wanted, (m, F),
                or (G, m, F) if they differ by set.
        """
        if self.linear is not None:
            return self.linear.estimate_sets(self.channel, observation, functionals)
        if self.taught is None:
            return reconstruct(self.channel, observation, functionals)
        return self.taught.reconstruct(observation, functionals, self.selecting_columns)

    @property
    def degrees_of_freedom(self) -> float:
        """Return the degrees of freedom of the standard errors, for Student's quantiles.

        By the default prior, they rest on how far the m published shares of a set deviate from those of all records,
        which gives m - 1 degrees. For a learnt prior they are a constant.
        """
        return max(len(self.channel.records) - 1, FEWEST_DEGREES) if self.taught is None else DEGREES

    @property
    def most_records(self) -> Floats:
        """Return the largest number of records that each value can have in the whole release (m,)."""
        return self.channel.records if self.most is None else self.most

    def noise_weight(self, share: Floats) -> Floats:
        """Return the factor by which the publisher's noise grows with a set of records (``Observation.weight``).

        It is share if values were drawn independently, and share (1 - share) if records took places in buckets.

        Args:
            share: The share of all records that each set holds.
        """
        return share if self.independent else share * (1 - share)


def read_sets(question: ReleaseQuestion, rows: pa.Table, scale: Floats) -> RecordSets:
    """Return the sets of records that a question distinguishes, from the rows of an SQL query.

    Args:
        question: The question.
        rows: One row for each set and published value: the number of the set (``set``), its keys, the index of the
            published value (``place``), how often it occurs in the set (``pairs``), and the sum of amounts
            (``amounts``).
        scale: The records that one occurrence stands for, by row (rows,). It is 1 if a record has one published value;
            for each value that a record's bucket lists, it is 1 over the number of listed values.
    """
    ranks = rows["set"].to_numpy()
    keys = read_keys(question, rows, ranks)
    shape = (len(keys), question.channel.mean.shape[1])
    observed, amounts = np.zeros(shape), np.zeros(shape)
    at = (ranks, rows["place"].to_numpy())
    np.add.at(observed, at, rows["pairs"].to_numpy().astype(np.float64) * scale)
    if question.query.measure.amount is not None:
        np.add.at(amounts, at, as_sums(rows["amounts"]) * scale)
    return RecordSets(keys, observed, amounts)


def read_keys(question: ReleaseQuestion, rows: pa.Table, ranks: NDArray[Any]) -> list[tuple[Any, ...]]:
    """Return the values that the records of each set have in common, by which a question tells the sets apart.

    They are the values of GROUP BY, then those of the pieces of conditions that also name sensitive columns.

    Args:
        question: The question.
        rows: Rows of an SQL query, each about one set.
        ranks: The number of the set of each row (rows,).
    """
    names = [name for name, _ in group_terms(question.query, "qi")]
    of_set = np.zeros(int(ranks.max(initial=-1)) + 1, dtype=np.int64)
    of_set[ranks] = np.arange(len(ranks))  # any row will do: all rows of a set have the same keys
    taken = rows.select(names).take(of_set).to_pylist() if names else [{}] * len(of_set)
    return [tuple(same_nan(row[name]) for name in names) for row in taken]


def as_sums(column: pa.ChunkedArray) -> Floats:
    """Return a column of SQL sums as doubles (rows,); NULL, the sum of no row, becomes 0."""
    return as_doubles(column, null=0.0)


def choose_functionals(
    question: ReleaseQuestion, record_sets: RecordSets, values: int
) -> tuple[list[tuple[Any, ...]], Floats]:
    """Find out which sensitive values count towards each group of the answer.

    Args:
        question: The question.
        record_sets: The sets of records that it distinguishes.
        values: The number of sensitive values, m.

    Returns:
        The F combinations of the grouped sensitive columns, and an array with 1 where a value counts towards a
        combination, else 0. Its shape is (m, F), or (G, m, F) if the values differ by set, because a condition such as
        OR joins quasi-identifiers and sensitive columns.
    """
    db, query = question.db, question.query
    terms = group_terms(query, "sa")
    holes: Holes = {
        "values": table("privsql_values"),
        "code": column(question.code),
        "terms": select_terms(query, "sa"),
        "filter": all_of(query.filters["sa"]),
    }
    listed = fill("query/chosen_values", holes)
    rows = [tuple(map(same_nan, row)) for row in db.rows(listed)]
    groups = len(terms) - len(query.terms["sa"])
    outputs = list(dict.fromkeys(row[1 : 1 + groups] for row in rows))
    rank = {output: f for f, output in enumerate(outputs)}
    place = {int(row[0]): rank[row[1 : 1 + groups]] for row in rows}
    if query.predicate is None:
        functionals = np.zeros((values, len(outputs)))
        for code, output in place.items():
            functionals[code, output] = 1
        return outputs, functionals
    names = [name for name, _ in group_terms(query, "qi")]
    keys, numbered = record_sets.keys, [(i, name) for i, name in enumerate(names) if name.startswith("q_")]
    columns = {name: pa.array([key[i] for key in keys]) for i, name in numbered}
    db.register_arrow("sets", pa.table({"set": pa.array(range(len(keys)), pa.int32()), **columns}))
    holes = {"sets": temp_table("sets"), "chosen": listed.subquery("chosen"), "predicate": query.predicate}
    cells = np.array(db.rows(fill("query/cells", holes)), dtype=np.int64).reshape(-1, 2)
    db.drop("sets")
    functionals = np.zeros((len(record_sets.keys), values, len(outputs)))
    functionals[cells[:, 0], cells[:, 1], [place[int(code)] for code in cells[:, 1]]] = 1
    return outputs, functionals


def apply_functionals(values: Floats, functionals: Floats) -> Floats:
    """Return weighted sums of counts.

    Args:
        values: The counts of m values in each of G sets (G, m).
        functionals: The weights of the values in each of F sums, (m, F) or by set (G, m, F).

    Returns:
        The sums (G, F).
    """
    if functionals.ndim == 2:
        return np.asarray(values @ functionals)
    return np.asarray(np.einsum("gm,gmf->gf", values, functionals))


# Counts ---------------------------------------------------------------------------------------------------------------

TURNS = 5  # of fitting the sums of rows and of columns


@dataclass(frozen=True)
class CountBounds:
    """Estimated counts with bounds, for G sets of records and F groups of sensitive values: arrays (G, F).

    Attributes:
        mean: The estimates.
        variance: The variances of their errors.
        least: The certain lower bounds.
        most: The certain upper bounds.
        judged: The part of the variance that rests on an estimate of how far each set's shares of values deviate from
            those of all records, and is itself uncertain; None if all of it is.
    """

    mean: Floats
    variance: Floats
    least: Floats
    most: Floats
    judged: Floats | None = None


def estimate_counts(question: ReleaseQuestion, record_sets: RecordSets, functionals: Floats) -> CountBounds:
    """Estimate how many records of every set count towards each group of sensitive values.

    Args:
        question: The question.
        record_sets: The G sets of records.
        functionals: 1 where one of m values counts towards one of F groups, else 0: (m, F), or by set (G, m, F).
    """
    counts, posterior = _reconstruct_sets(question, record_sets.observed, functionals)
    parts = _bound_counts(question, posterior, functionals, counts.total)
    return _fit_totals(question, record_sets, functionals, parts)


def _reconstruct_sets(
    question: ReleaseQuestion, observed: Floats, functionals: Floats
) -> tuple[Observation, Posterior]:
    """Return what the release shows of the sets, and the estimated counts of the values in each set.

    A count lies between 0 and the smaller of two numbers: the records of the value, and those of the set. The counts of
    a set sum to its size.

    Args:
        question: The question.
        observed: The published values added up over each set (G, k).
        functionals: 1 where one of m values counts towards one of F groups, else 0: (m, F), or by set (G, m, F).
    """
    totals, channel = observed.sum(axis=1), question.channel
    weight = question.noise_weight(totals / channel.records.sum())
    counts = Observation(observed, totals, totals, totals, weight)
    posterior, caps = question.reconstruct(counts, functionals), np.minimum(question.most_records, totals[:, None])
    values = project_within(posterior.values, totals, caps, channel.prior_shape + channel.shares)
    return counts, replace(posterior, values=values)


def _fit_totals(
    question: ReleaseQuestion, record_sets: RecordSets, functionals: Floats, parts: CountBounds
) -> CountBounds:
    """Move the counts so that they sum to the answer of the same question without grouping by quasi-identifiers.

    Because counts can't be negative, those of small sets have too large a sum. The difference is taken from all counts
    in proportion to their errors. The square of a count's move is added to its variance.

    Args:
        question: The question.
        record_sets: The G sets of records.
        functionals: 1 where one of m values counts towards one of F groups, else 0: (m, F), or by set (G, m, F).
        parts: The counts to be moved.
    """
    if len(record_sets.keys) < 2 or functionals.ndim > 2 or question.query.measure.amount is not None:
        return parts
    sides = tuple(group for group in question.query.groups if group.side != "qi")
    alone = replace(question, query=replace(question.query, groups=sides))
    _, posterior = _reconstruct_sets(alone, record_sets.observed.sum(axis=0, keepdims=True), functionals)
    wanted, mean = apply_functionals(posterior.values, functionals)[0], parts.mean
    once, totals = (functionals.sum(axis=1) == 1).all(), record_sets.observed.sum(axis=1)
    for _ in range(TURNS if once else 1):  # if every record counts once, sums of rows are known, too
        if once:
            mean = project_within(mean, totals, parts.most, np.maximum(parts.variance.mean(axis=0), CERTAIN))
        mean = fit_sums(mean, wanted, (parts.least, parts.most), np.sqrt(parts.variance))
    return replace(parts, mean=mean, variance=parts.variance + (mean - parts.mean) ** 2)


def pool_sets(query: CountQuery, record_sets: RecordSets, functionals: Floats) -> tuple[RecordSets, Floats]:
    """Unite the sets that belong to the same group of the answer and ask for the same sensitive values.

    The estimate of every set is drawn towards the shares of the whole table, so ten small sets would be drawn further
    than their union. Sets that ask for no value are left out.

    Args:
        query: The question.
        record_sets: The G sets.
        functionals: 1 where a value counts towards a group for a set, else 0 (G, m, F).

    Returns:
        The united sets, and their functionals: (m, F) if these are the same for all sets, else (sets, m, F).
    """
    group_count = sum(group.side == "qi" for group in query.groups)
    rank: dict[tuple[Any, ...], int] = {}
    keys = ((*key[:group_count], wanted.tobytes()) for key, wanted in zip(record_sets.keys, functionals, strict=True))
    member = np.array([rank.setdefault(key, len(rank)) for key in keys])
    observed = np.zeros((len(rank), record_sets.observed.shape[1]))
    np.add.at(observed, member, record_sets.observed)
    _, first = np.unique(member, return_index=True)
    remaining = np.flatnonzero(functionals[first].any(axis=(1, 2)))
    wanted = functionals[first][remaining]
    names = [key[:-1] for key in rank]
    amounts = np.zeros((len(remaining), observed.shape[1]))
    pooled = RecordSets([names[i] for i in remaining], observed[remaining], amounts)
    same = len(remaining) and (wanted == wanted[0]).all()
    return pooled, wanted[0] if same else wanted


def _bound_counts(question: ReleaseQuestion, posterior: Posterior, functionals: Floats, totals: Floats) -> CountBounds:
    """Return the estimated counts with bounds that hold with certainty.

    A set of ``totals`` records has at most as many records of the counted values as the whole release has. If the
    release has too few records of all other values to fill the set, the rest must have counted values.

    Args:
        question: The question.
        posterior: The estimated counts of the sets.
        functionals: 1 where one of m values counts towards one of F groups, else 0: (m, F), or by set (G, m, F).
        totals: The number of records in each set (G,).
    """
    held, others = _split_sums(question.most_records, posterior.values.shape, functionals)
    most = np.minimum(totals[:, None], held)
    variance = posterior.std_error**2
    if question.uncertain is not None:
        share = totals / question.channel.records.sum()
        uncertain = _split_sums(question.uncertain, posterior.values.shape, functionals)
        variance = variance + share[:, None] ** 2 * np.minimum(*uncertain)
    mean = apply_functionals(posterior.values, functionals)
    return CountBounds(mean, variance, (totals[:, None] - others).clip(0), most, posterior.judged)


def _split_sums(values: Floats, shape: tuple[int, ...], functionals: Floats) -> tuple[Floats, Floats]:
    """Return two sums over sensitive values, each (G, F): of those that count towards a group, and of all others.

    Args:
        values: The number to add up for each sensitive value (m,).
        shape: The shape (G, m).
        functionals: 1 where one of m values counts towards one of F groups, else 0: (m, F), or by set (G, m, F).
    """
    spread = np.broadcast_to(values, shape)
    return apply_functionals(spread, functionals), apply_functionals(spread, 1 - functionals)


# Posterior ------------------------------------------------------------------------------------------------------------
# From the sets of a question to the rows of its answer, for any mechanism.
#
# ``channel.reconstruct`` gives counts per sensitive value for each set of records. These are moved into their bounds,
# summed over the values and sets of each row of the answer, and get an interval.

SURELY = 5  # standard errors within which a count is taken to lie
ROUNDING = 1e-6  # records; a smaller count is 0
LARGE = 1e4  # a larger quotient of variances makes no difference


@dataclass(frozen=True)
class ConfidenceLevel:
    """What determines the width of an interval, apart from the standard error.

    Attributes:
        confidence: The confidence that the user asks for, between 0 and 1.
        degrees: The degrees of freedom of the standard error; infinite if it is known exactly.
    """

    confidence: float
    degrees: float = np.inf


def estimate_rows(question: ReleaseQuestion, record_sets: RecordSets, confidence: float) -> list[Estimate]:
    """Return the rows of the answer with estimates, standard errors and intervals.

    There is one row for each group that may be non-empty.

    Args:
        question: The question.
        record_sets: The sets of records that it distinguishes.
        confidence: The probability with which each interval is meant to hold the true answer.
    """
    channel, query = question.channel, question.query
    outputs, functionals = choose_functionals(question, record_sets, len(channel.records))
    if not record_sets.keys or not outputs:
        return empty_estimates(query)
    if functionals.ndim > 2 and query.measure.amount is None:
        record_sets, functionals = pool_sets(query, record_sets, functionals)
        if not record_sets.keys:
            return empty_estimates(query)
    parts = estimate_counts(question, record_sets, functionals)
    level = ConfidenceLevel(confidence, question.degrees_of_freedom)
    amounts = _reconstruct_amounts(question, record_sets, functionals)
    return collect_estimates(query, record_sets, outputs, parts, level, amounts)


def empty_estimates(query: CountQuery) -> list[Estimate]:
    """Return the answer if no record can match: no row, or the figures of an empty table if there is no GROUP BY."""
    return [Estimate((), *query.measure.empty_figures)] if not query.groups else []


@dataclass(frozen=True)
class AmountMoments:
    """What is known exactly of the amounts a that SUM(a) or AVG(a) adds up, for each of G sets of records.

    Attributes:
        size: The number of records with an amount that is not NULL (G,).
        total: The sum of a (G,).
        second: The sum of (a - centre)^2 (G,).
        centre: The mean of a over all sets of the same group of the answer (G,).
        least: The least a (G,).
        most: The greatest a (G,).
        deviations: The published values added up over the set, with every record weighted by a - centre (G, k).
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
    """The estimated sums of the amounts that SUM or AVG adds up, for G sets of records and F groups of values.

    Each is the sum of amount - centre over the records of a set whose sensitive value counts towards a group. The
    centre is the mean amount over all sets of the same group of the answer.

    Attributes:
        moments: What is known exactly of the amounts, among it ``centre``.
        mean: The estimated sums (G, F).
        variance: The variances of their errors (G, F).
    """

    moments: AmountMoments
    mean: Floats
    variance: Floats


def measure_amounts(question: ReleaseQuestion, record_sets: RecordSets) -> AmountMoments | None:
    """Return what is known exactly of the amounts that SUM or AVG adds up in each set of records.

    The result is None for a question without amounts, such as a count.

    Raises:
        UsageError: An amount is not finite, or the amounts are too large to be added up.
    """
    query = question.query
    if query.measure.amount is None:
        return None
    holes: Holes = {
        "qit": query.join_lookups(question.records),
        "amount": exp.cast(query.measure.amount, "DOUBLE"),
        **condition_holes(query),
    }
    moments = {tuple(map(same_nan, row[:-5])): row[-5:] for row in question.db.rows(fill("query/moments", holes))}
    size, total, squares, least, most = np.array([moments[key] for key in record_sets.keys], dtype=np.float64).T
    if not np.isfinite([total, squares]).all():
        raise UsageError(f"{query.measure.column} is not finite everywhere, or too large to be added up; see WHERE")
    group_count = sum(group.side == "qi" for group in query.groups)
    rank: dict[tuple[Any, ...], int] = {}
    member = np.array([rank.setdefault(key[:group_count], len(rank)) for key in record_sets.keys])
    centre = (np.bincount(member, total) / np.maximum(np.bincount(member, size), 1))[member]
    second = (squares - 2 * centre * total + centre**2 * size).clip(0)
    deviations = record_sets.amounts - centre[:, None] * record_sets.observed * (size > 0)[:, None]
    return AmountMoments(size, total, second, centre, least, most, deviations)


def _reconstruct_amounts(question: ReleaseQuestion, record_sets: RecordSets, functionals: Floats) -> Amounts | None:
    """Estimate the sums that SUM or AVG asks for, over the records whose sensitive values count towards each group.

    From each amount, the mean amount of the group of the answer is subtracted first. The result is None if the question
    adds up no amount.
    """
    moments = measure_amounts(question, record_sets)
    if moments is None:
        return None
    # Unlike counts, amounts differ within a value: their noise does not vanish where the set is everyone.
    weight, scale = moments.second / question.channel.records.sum(), np.sqrt(moments.size * moments.second)
    sums = Observation(moments.deviations, moments.total - moments.centre * moments.size, scale, moments.second, weight)
    posterior = question.reconstruct(sums, functionals)
    return Amounts(moments, apply_functionals(posterior.values, functionals), posterior.std_error**2)


def collect_estimates(
    query: CountQuery,
    record_sets: RecordSets,
    outputs: list[tuple[Any, ...]],
    counts: CountBounds,
    level: ConfidenceLevel,
    amounts: Amounts | None = None,
) -> list[Estimate]:
    """Return one row for each group of the answer by adding up its sets, whose errors are independent.

    Args:
        query: The question.
        record_sets: The G sets of records.
        outputs: The F combinations of the grouped sensitive columns.
        counts: The estimated counts (G, F).
        level: The confidence, and the degrees of freedom of the errors.
        amounts: The estimated sums of amounts; None for a count.
    """
    cells = locate_cells(query, record_sets, outputs, counts.most)
    if not query.groups and not cells.groups:
        return [Estimate((), *query.measure.empty_figures)]
    if amounts is None:
        return _count_rows(counts, cells, level)
    each = zip(cells.groups, cells.split_by_group(), strict=True)
    return [Estimate(group, *_amount_figures(query, counts, amounts, at, level)) for group, at in each]


Figures = tuple[float | None, ...]  # the figures of an Estimate, in its order
At = tuple[NDArray[np.intp], NDArray[np.intp]]  # indices of sets and of functionals, one pair for each cell


@dataclass(frozen=True)
class AnswerCells:
    """The cells of a table of G sets by F combinations of sensitive values, each assigned to its group of the answer.

    Attributes:
        groups: The groups of the answer, each as the values of its GROUP BY.
        member: The index of the group of each of the c cells (c,).
        at: The row and the column of each cell in the table, two arrays (c,).
    """

    groups: list[tuple[Any, ...]]
    member: NDArray[np.intp]
    at: At

    def sum_by_group(self, part: Floats) -> Floats:
        """Return for each group of the answer the sum of a table (G, F) over its cells."""
        return np.asarray(np.bincount(self.member, part[self.at], len(self.groups)), dtype=np.float64)

    def split_by_group(self) -> list[At]:
        """Return for each group the rows and the columns of its cells in the table, as two arrays."""
        if not self.groups:
            return []
        order = np.argsort(self.member, kind="stable")
        ends = np.cumsum(np.bincount(self.member, minlength=len(self.groups)))[:-1]
        sets, functionals = (np.split(part[order], ends) for part in self.at)
        return list(zip(sets, functionals, strict=True))


def locate_cells(
    query: CountQuery, record_sets: RecordSets, outputs: list[tuple[Any, ...]], most: Floats
) -> AnswerCells:
    """Assign each cell of the table of counts (G, F) that may be non-empty to its group of the answer.

    Args:
        query: The question.
        record_sets: The G sets of records.
        outputs: The F combinations of the grouped sensitive columns.
        most: The certain upper bounds of the counts (G, F); cells where it is 0 are left out.
    """
    sides = [group.side for group in query.groups]
    group_count = sides.count("qi")
    rank: dict[tuple[Any, ...], int] = {}
    ranks = np.array([rank.setdefault(key[:group_count], len(rank)) for key in record_sets.keys], dtype=np.intp)
    at = np.nonzero(most > 0)
    met, member = np.unique(ranks[at[0]] * len(outputs) + at[1], return_inverse=True)
    keys = list(rank)

    first, second = itertools.count(), itertools.count(group_count)
    places = [next(first if side == "qi" else second) for side in sides]
    pairs = (divmod(number, len(outputs)) for number in met.tolist())
    joined = (keys[i] + outputs[f] for i, f in pairs)
    return AnswerCells([tuple(key[place] for place in places) for key in joined], member, (at[0], at[1]))


def _count_rows(counts: CountBounds, cells: AnswerCells, level: ConfidenceLevel) -> list[Estimate]:
    mean, least, most = (cells.sum_by_group(part) for part in (counts.mean, counts.least, counts.most))
    error = np.where(most > least, np.sqrt(cells.sum_by_group(counts.variance)), 0.0)
    mean = np.clip(mean, least, most)
    mean[np.abs(mean) < ROUNDING] = 0.0  # next to nobody is nobody: SQL makes NULL of that
    low, high = count_intervals(
        mean, error, level.confidence, _satterthwaite_degrees(counts, cells.sum_by_group, level)
    )
    low, high = (np.where(error, *ends) for ends in zip(round_bounds(low, high), (low, high), strict=True))
    low, high = np.minimum(mean, np.maximum(low, least)), np.maximum(mean, np.minimum(high, most))
    error = np.minimum(error, np.maximum(most - least, 0.0) / 2)  # the largest possible one on [least, most]
    rows = zip(cells.groups, *(part.tolist() for part in (mean, error, low, high)), strict=True)
    return [Estimate(*row) for row in rows]


def _satterthwaite_degrees(counts: CountBounds, add: Callable[[Floats], Floats], level: ConfidenceLevel) -> Floats:
    """Return the degrees of freedom of the standard error of each group (Satterthwaite 1946).

    They are nu (V / J)^2. V is the variance of the error, J the part of V that was estimated from the observation, and
    nu the degrees of freedom of J.

    Args:
        counts: The counts, with V and J for each cell.
        add: A function that sums a table (G, F) over the cells of each group.
        level: The confidence level, which holds nu.
    """
    whole = add(counts.variance)
    judged = whole if counts.judged is None else add(counts.judged)
    share = np.divide(whole, judged, out=np.full_like(whole, LARGE), where=judged * LARGE > whole)
    return np.asarray(level.degrees * np.maximum(share, 1.0) ** 2)


def _amount_figures(
    query: CountQuery, counts: CountBounds, amounts: Amounts, at: At, level: ConfidenceLevel
) -> Figures:
    moments = amounts.moments
    known = moments.size[at[0]] > 0
    at = (at[0][known], at[1][known])
    if not known.any():
        return query.measure.empty_figures
    centre, number = float(moments.centre[at[0][0]]), max(float(counts.mean[at].sum()), 1e-9)
    spread, above = float(amounts.variance[at].sum()), float(amounts.mean[at].sum())
    counted = float(counts.variance[at].sum())
    least, most = float(moments.least[at[0]].min()), float(moments.most[at[0]].max())
    room, fewest = float(counts.most[at].sum()), float(counts.least[at].sum())
    if query.measure.kind == "sum":
        mean, variance = centre * number + above, centre**2 * counted + spread
    else:
        mean = centre + above / number
        variance = spread / number**2 + (above / number**2) ** 2 * counted
    count = CountFigures(number, counted, fewest, room)
    degrees = _satterthwaite_degrees(counts, lambda part: part[at].sum(keepdims=True), level)
    return bound_amount(query, (mean, variance), (least, most), count, replace(level, degrees=float(degrees[0])))


@dataclass(frozen=True)
class CountFigures:
    """The number of records that a sum or mean is taken over.

    Attributes:
        mean: The estimate.
        variance: The variance of its error.
        least: The certain lower bound.
        most: The certain upper bound.
    """

    mean: float
    variance: float
    least: float
    most: float


def bound_amount(
    query: CountQuery,
    figure: tuple[float, float],
    range_of_one: tuple[float, float],
    count: CountFigures,
    level: ConfidenceLevel,
) -> Figures:
    """Return the figures of a sum or mean, and the smallest number of records that it is taken over.

    The figures are estimate, standard error, low and high. If there is hardly a record to add up, they are those that
    SQL gives for no record.

    Args:
        query: The question, which says whether it is a sum or a mean.
        figure: The estimate and the variance of its error.
        range_of_one: The least and the greatest amount of a single record.
        count: The number of records that it is taken over.
        level: The confidence, and the degrees of freedom of the error.
    """
    if count.mean + SURELY * count.variance**0.5 < 1 / 2:  # there is hardly a record
        return (*query.measure.empty_figures, 0.0)
    least, most = range_of_one
    if query.measure.kind == "sum":
        least, most = min(least * count.most, 0.0), max(most * count.most, 0.0)
    mean, error = figure[0], float(np.sqrt(figure[1]))
    reach = float(student_quantile((1 - level.confidence) / 2, level.degrees))
    mean, width = min(max(mean, least), most), reach * error
    fewest = max(count.mean - reach * count.variance**0.5, count.least)
    return mean, min(error, (most - least) / 2), max(mean - width, least), min(mean + width, most), fewest


@dataclass(frozen=True)
class WeightedSums:
    """Sums over the weighted rows of a release; every array has one entry for each group of an answer.

    A row of weight w stands for w records. The variance of each weight is known.

    Attributes:
        known: The number of rows whose amount is not NULL.
        n: The sum of the weights, which estimates the number of records.
        a: The sum of the amounts times the weights.
        nn: The variance of n.
        na: The covariance of n and a.
        aa: The variance of a.
        least: The least amount of a row.
        most: The greatest amount of a row.
    """

    known: Floats
    n: Floats
    a: Floats
    nn: Floats
    na: Floats
    aa: Floats
    least: Floats
    most: Floats

    @staticmethod
    def read(rows: pa.Table, order: NDArray[np.intp] | None = None) -> WeightedSums:
        """Read the sums from the columns of an SQL result, which are named as the attributes.

        Args:
            rows: One row for each group that was found.
            order: For each group of the answer the index of its row, -1 if it has none; None if ``rows`` are the
                groups.
        """
        order = np.arange(len(rows)) if order is None else order
        return WeightedSums(*(np.append(as_sums(rows[one.name]), 0.0)[order] for one in fields(WeightedSums)))

    def measure_amounts(self, kind: str) -> tuple[Floats, Floats, Floats]:
        """Return the sums or means of the amounts, their covariances with the count, and their variances.

        Args:
            kind: ``sum``, or ``avg`` for means.
        """
        if kind == "sum":
            return self.a, self.na, self.aa
        number = np.maximum(self.n, 1e-9)
        mean = self.a / number
        spread = (self.aa - 2 * mean * self.na + mean**2 * self.nn) / number**2
        return mean, (self.na - mean * self.nn) / number, spread.clip(0)

    def bound_amounts(
        self, query: CountQuery, mean: Floats, variance: Floats, counts: CountBounds, level: ConfidenceLevel
    ) -> list[Figures]:
        """Return estimate, standard error, low and high of each group's sum or mean, and its least number of records.

        Args:
            query: The question.
            mean: The sums or means (G,).
            variance: The variances of their errors (G,).
            counts: The numbers of records that they are taken over (G, 1).
            level: The confidence, and the degrees of freedom of the error.
        """
        of_counts = (part[:, 0].tolist() for part in (counts.mean, counts.variance, counts.least, counts.most))
        pairs = ((mean, variance), (self.least, self.most))
        figures, ends = (zip(*(part.tolist() for part in pair), strict=True) for pair in pairs)
        each = zip(figures, ends, zip(*of_counts, strict=True), strict=True)
        return [bound_amount(query, figure, reach, CountFigures(*count), level) for figure, reach, count in each]


def count_groups(groups: list[tuple[Any, ...]], counts: CountBounds, level: ConfidenceLevel) -> list[Estimate]:
    """Return one row of the answer with a count and its interval for each group.

    Args:
        groups: The values of GROUP BY for each group.
        counts: The estimated counts (G, 1).
        level: The confidence, and the degrees of freedom of the errors.
    """
    places = np.arange(len(groups))
    return _count_rows(counts, AnswerCells(groups, places, (places, np.zeros_like(places))), level)
