"""Trees of noisy counts: budgets by level, consistent sizes, and a model of the records that were pruned."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privsql.dp_random import variance_of
from privsql.errors import InfeasibleError
from privsql.exact import fraction_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from fractions import Fraction

# Budget ---------------------------------------------------------------------------------------------------------------
# Budgets of a noisy tree in exact fractions, and thresholds that let few empty partitions pass.

PRECISION = 50  # decimal digits of the logarithm in a threshold; correctly rounded, so the same everywhere


@dataclass
class BudgetCodes:
    """The distinct budgets of a run: ``values[code]`` is a fraction; equal fractions have one code."""

    values: list[Fraction] = field(default_factory=list)
    codes: dict[Fraction, int] = field(default_factory=dict)

    def code_of(self, value: Fraction) -> int:
        """The code of a fraction, new or known."""
        if value not in self.codes:
            self.codes[value] = len(self.values)
            self.values.append(value)
        return self.codes[value]


def least_cutoff(empty: int, passing: Fraction, spent: Fraction) -> int:
    """The least t >= 1 with empty * Pr[noise >= t] <= passing; Pr[noise >= t] = p^t/(1+p), p = exp(-spent)."""
    with localcontext() as context:
        context.prec = PRECISION
        alpha = _as_decimal(spent)
        ratio = empty / (_as_decimal(passing) * (1 + (-alpha).exp()))
        return max(1, int((ratio.ln() / alpha).to_integral_value(rounding="ROUND_CEILING")))


def _as_decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


# Tree -----------------------------------------------------------------------------------------------------------------
# A noisy tree of partitions, whatever these are, and what growing or reading one takes in arrays.

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class NoisyTree:
    """Every partition that was kept, with its noisy size; row 0 is the root, which is never counted.

    All arrays have T rows. ``parent``: row of the partition that was expanded, ascending, before its children; -1 for
    the root. ``next``: the taxonomy node at which the row itself is expanded, -1 for a leaf. ``size``: the noisy size,
    an integer. ``spent``: code of the budget of that count in ``budgets``. Rows of one parent lie in an order that
    does not tell the empty ones from the others.
    """

    parent: Ints
    next: Ints
    size: Ints
    spent: Ints
    leaf: Flags
    budgets: tuple[Fraction, ...]

    def __len__(self) -> int:
        return len(self.parent)


def rows_by_depth(tree: NoisyTree) -> list[Ints]:
    """Rows by depth, the root alone first; the rows of one depth are a run."""
    edges = [0, 1]
    while edges[-1] < len(tree):
        inside = np.searchsorted(tree.parent, edges[-1])  # parents ascend
        edges.append(int(inside))
    return [np.arange(start, end) for start, end in pairwise(edges)]


def fill_expanded(leaf: Flags, parts: Sequence[Ints]) -> Ints:
    """A column of a tree from its values, round by round, in the rows that are expanded; -1 in leaves."""
    result = np.full(len(leaf), -1, dtype=np.int64)
    result[~leaf] = np.concatenate([result[:0], *parts])
    return result


def distinct_rows(*columns: Ints | Flags) -> tuple[list[list[int]], Ints]:
    """The different rows of some columns (n,), in order, and which of them each row is (n,)."""
    result, which = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    return result.tolist(), which.reshape(-1)


def group_levels(members: int, fan_out: int) -> list[Ints]:
    """A context-free taxonomy: by level from below, the group (at the next level) of each member, up to one root."""
    groups: list[Ints] = []
    while members > 1 or not groups:
        groups.append(np.arange(members, dtype=np.int64) // fan_out)
        members = -(-members // fan_out)
    return groups


# Consistent -----------------------------------------------------------------------------------------------------------
# Sizes that agree with each other: every noisy size of the tree and a prior for what was pruned, by least squares.
#
# Of each partition that was expanded the unknowns are the sizes of the children that were kept and one more, the
# records of all pruned children together. Children and remainder add up to their parent. With independent noise of
# known variance the least-squares estimate is found in two passes (Hay, Rastogi, Miklau, Suciu, PVLDB 2010, for unequal
# variances): upwards every row combines its own noisy size with the sum of what lies below it, downwards the difference
# between a parent and that sum is shared among children and remainder in proportion to their variances.

UNKNOWN = 1e18  # variance of a size that was not counted


@dataclass(frozen=True)
class Remainder:
    """Prior for the records of the pruned children of each row, (T,): mean and variance; of no meaning for leaves."""

    mean: Reals
    variance: Reals


@dataclass(frozen=True)
class Consistent:
    """Estimated sizes (T,) and remainders (T,) that add up, and what the variance of a sum of them takes.

    ``below``: variance of a row's size from what lies below it alone (its own count for a leaf); ``total``: sum of the
    variances of children and remainder of an expanded row; ``left``: variance of its remainder's prior;
    ``size_variance``: of the root's size.
    """

    size: Reals
    remainder: Reals
    below: Reals
    total: Reals
    left: Reals
    root_variance: float


def noise_variance(tree: NoisyTree) -> Reals:
    """Variance of each row's noisy size, (T,); ``UNKNOWN`` for the root, which spent nothing: its code is -1."""
    result: Reals = np.array([*(variance_of(budget) for budget in tree.budgets), UNKNOWN])[tree.spent]
    return result


def make_consistent(tree: NoisyTree, noise: Reals, prior: Remainder) -> Consistent:
    """Both passes; O(T). ``noise`` is ``noise_variance``."""
    size, below = tree.size.astype(np.float64), noise.copy()
    sums = np.where(tree.leaf, 0.0, prior.mean)
    total = np.where(tree.leaf, 0.0, prior.variance)
    levels = rows_by_depth(tree)
    for rows in reversed(levels):
        inner = rows[~tree.leaf[rows]]
        weight = noise[inner] / (noise[inner] + total[inner])  # of the sum
        size[inner] += weight * (sums[inner] - size[inner])
        below[inner] = total[inner] * weight
        np.add.at(sums, tree.parent[rows[rows > 0]], size[rows[rows > 0]])
        np.add.at(total, tree.parent[rows[rows > 0]], below[rows[rows > 0]])
    remainder, share = np.zeros(len(tree)), np.zeros(len(tree))
    for rows in levels:
        inner = rows[~tree.leaf[rows]]
        gap = (size[inner] - sums[inner]) / total[inner]
        remainder[inner] = prior.mean[inner] + prior.variance[inner] * gap
        share[inner] = gap
        following = _child_rows(tree, rows)
        size[following] += below[following] * share[tree.parent[following]]
    return Consistent(size, remainder, below, total, np.where(tree.leaf, 0.0, prior.variance), float(below[0]))


def _child_rows(tree: NoisyTree, rows: Ints) -> Ints:
    first, end = np.searchsorted(tree.parent, [rows[0], rows[-1] + 1])
    return np.arange(first, end)


def estimate_sum(tree: NoisyTree, sizes: Consistent, leaf: Reals, pruned: Reals) -> tuple[float, float]:
    """Estimate and variance of a sum: of leaves with share ``leaf``, of remainders with share ``pruned``, both (T,).

    Given the size S of a row, the sum below it is a + b*S with variance w; upwards, over children and remainder,
    b = sum v_i b_i / sum v_i, and w gains sum v_i b_i^2 - (sum v_i b_i)^2 / sum v_i.
    """
    slope, spread = np.where(tree.leaf, leaf, 0.0), np.zeros(len(tree))
    first = np.where(tree.leaf, 0.0, sizes.left * pruned)
    second = first * pruned
    for rows in reversed(rows_by_depth(tree)):
        inner = rows[~tree.leaf[rows]]
        slope[inner] = first[inner] / sizes.total[inner]
        spread[inner] += second[inner] - first[inner] * slope[inner]
        up = rows[rows > 0]
        above = tree.parent[up]
        np.add.at(first, above, sizes.below[up] * slope[up])
        np.add.at(second, above, sizes.below[up] * slope[up] ** 2)
        np.add.at(spread, above, spread[up])
    estimate = float(leaf[tree.leaf] @ sizes.size[tree.leaf] + pruned[~tree.leaf] @ sizes.remainder[~tree.leaf])
    return estimate, float(spread[0] + slope[0] ** 2 * sizes.root_variance)


# Pruned ---------------------------------------------------------------------------------------------------------------
# What the pruned sub-partitions hold: a model of how each taxonomy node is expanded, pooled over all its expansions.
#
# In every expansion of node u a record's sub-partition is taken to have the same distribution pi_u over the candidates,
# so the records that a row lost fall on the candidates that it did not keep, in proportion to pi_u. Candidates that one
# row pruned are known from rows that kept them (quasi-independence in a table of rows x candidates with the pruned
# cells missing; fitted by expectation maximization). Everything here is computed from the published tree, so it spends
# no budget.
#
# Noise that happens to be large makes an empty partition pass, so a small kept size is more often noise than its
# variance says. The true size c of a partition is given a prior with a heavy tail, Pr[c >= k] = 1/(1 + k/m), whose
# scale m is what the model expects there; the error of the published size y is then E[(c - y)^2 | y].

ITERATIONS = 20
DOUBT = 1.0  # standard deviation of a remainder's prior, as a part of its mean
NEGLIGIBLE = 1e-9
MOST = 100_000  # what stands for pruned records, beyond one for every expanded row
NOTHING = 1e-6  # records: a row whose candidates were all kept has nothing to stand for
TAIL = 1.0  # exponent of the tail of the prior of a kept size
LEAST = 0.05  # records: the least scale of that prior
REACH, STEPS = 16.0, 32  # how far from y true sizes are looked at, in units of 1/budget; points on either side
ANYWHERE = 1.0  # records per node that are spread over its candidates, whether or not any was kept


@dataclass(frozen=True)
class Candidates:
    """The M sub-partitions that the model knows of, by the taxonomy node that is expanded into them.

    ``node``, ``sub`` (M,), sorted: the node, and which of its sub-partitions: a bit mask over its children, or a child.
    ``starts`` (K+1,): the first of each node. ``of_row`` (T,): the candidate that a row is, -1 for the root.
    """

    node: Ints
    sub: Ints
    starts: Ints
    of_row: Ints

    @property
    def node_count(self) -> int:
        """K."""
        return len(self.starts) - 1


@dataclass(frozen=True)
class Fit:
    """Consistent sizes and the model: ``frequency`` (M,), expected records by candidate over all rows of its node."""

    candidates: Candidates
    frequency: Reals
    sizes: Consistent


def fit_sizes(tree: NoisyTree, candidates: Candidates, anywhere: Callable[[Reals], Reals]) -> Fit:
    """Sizes and model, each improved by the other.

    ``anywhere`` gives, for the frequencies so far, a distribution over each node's candidates that leaves none out.
    """
    noise = noise_variance(tree)
    size = np.maximum(tree.size, 0).astype(np.float64)
    size[0] = size[tree.parent == 0].sum()
    frequency = _remaining_records(candidates, size)
    for _ in range(ITERATIONS):
        frequency = frequency + ANYWHERE * anywhere(frequency)
        error = np.maximum(noise, _selection_error(tree, candidates, frequency, size))
        sizes = make_consistent(tree, error, expected_remainder(tree, candidates, frequency, size))
        size = np.maximum(sizes.size, 0)
        frequency = _remaining_records(candidates, size) + _pruned_records(
            tree, candidates, frequency, np.maximum(sizes.remainder, 0)
        )
    return Fit(candidates, frequency, sizes)


def fit_all_candidates(tree: NoisyTree, candidates: Candidates) -> Fit:
    """Fit a tree of which every candidate was kept: nothing is lost, and errors are the noise's."""
    none = np.zeros(len(tree))
    sizes = make_consistent(tree, noise_variance(tree), Remainder(none, none + 1))
    return Fit(candidates, _remaining_records(candidates, np.maximum(sizes.size, 0)), sizes)


def pruned_frequency(tree: NoisyTree, candidates: Candidates, frequency: Reals) -> tuple[Reals, Reals]:
    """By row: frequency of the candidates that it did not keep, and of all candidates of its node."""
    of_node = np.add.reduceat(np.append(frequency, 0.0), candidates.starts[:-1])
    everything = np.where(tree.leaf, 0.0, of_node[tree.next])
    remaining = np.bincount(tree.parent[1:], weights=frequency[candidates.of_row[1:]], minlength=len(tree))
    return np.maximum(everything - remaining, 0.0), everything


def expected_remainder(tree: NoisyTree, candidates: Candidates, frequency: Reals, size: Reals) -> Remainder:
    """Prior of what each row lost: its size times the share of the candidates that it did not keep."""
    missing, everything = pruned_frequency(tree, candidates, frequency)
    mean = np.divide(size * missing, everything, out=np.zeros(len(tree)), where=everything > 0)
    return Remainder(mean, (DOUBT * mean) ** 2 + mean + 1)


def _selection_error(tree: NoisyTree, candidates: Candidates, frequency: Reals, size: Reals) -> Reals:
    """Squared error of the leaves' noisy sizes, (T,), given that they passed their threshold; 0 for other rows."""
    leaf = np.flatnonzero(tree.leaf)
    _, everything = pruned_frequency(tree, candidates, frequency)
    above, leaf_frequency = tree.parent[leaf], frequency[candidates.of_row[leaf]]
    # Without what the leaf itself has brought into the model.
    others = np.maximum(leaf_frequency - np.maximum(tree.size[leaf], 0), 0.0)
    scale = size[above] * others / np.maximum(everything[above], 1.0)
    budget = np.array([float(one) for one in tree.budgets])[tree.spent[leaf]]
    result = np.zeros(len(tree))
    result[leaf] = squared_error(tree.size[leaf], budget, scale)
    return result


def squared_error(size: Ints, budget: Reals, scale: Reals) -> Reals:
    """E[(c - y)^2 | y] for sizes (n,), each with its budget and the scale of its prior."""
    step = np.maximum(1.0, REACH / budget / STEPS)[:, None]
    true = np.round(size[:, None] + np.arange(-STEPS, STEPS + 1) * step)
    possible, prior = np.maximum(true, 0), np.maximum(scale, LEAST)[:, None]
    weight = (1 + possible / prior) ** -TAIL - (1 + (possible + step) / prior) ** -TAIL
    distance = np.abs(size[:, None] - possible)
    weight *= (true >= 0) * np.exp(-budget[:, None] * distance)
    total = weight.sum(axis=1)
    result: Reals = np.divide((weight * distance**2).sum(axis=1), total, out=np.zeros(len(size)), where=total > 0)
    return result


def _remaining_records(candidates: Candidates, size: Reals) -> Reals:
    """Records by candidate, over all rows that kept it."""
    return np.bincount(candidates.of_row[1:], weights=size[1:], minlength=len(candidates.sub)).astype(np.float64)


def _pruned_records(tree: NoisyTree, candidates: Candidates, frequency: Reals, records: Reals) -> Reals:
    """Expected records by candidate, over all rows that did not keep it and lost ``records`` (T,) together."""
    missing, _ = pruned_frequency(tree, candidates, frequency)
    rate = np.divide(records, missing, out=np.zeros(len(tree)), where=missing > NEGLIGIBLE)
    inner = np.flatnonzero(~tree.leaf)
    of_node = np.bincount(tree.next[inner], weights=rate[inner], minlength=candidates.node_count)
    remaining = np.bincount(candidates.of_row[1:], weights=rate[tree.parent[1:]], minlength=len(candidates.sub))
    result: Reals = frequency * np.maximum(of_node[candidates.node] - remaining, 0.0)
    return result


@dataclass(frozen=True)
class Lost:
    """Stand-ins for pruned records: ``row`` (G,), ascending: the expanded row that lost them; ``candidate`` (G,):
    in which of the sub-partitions that it did not keep; ``weight`` (G,): an equal share of the row's remainder, which
    may be negative where the noise is.
    """

    row: Ints
    candidate: Ints
    weight: Reals


def draw_lost(tree: NoisyTree, fit: Fit, draw: np.random.Generator) -> Lost:
    """At least one for every expanded row that may have lost records, more for those that lost more."""
    missing, _ = pruned_frequency(tree, fit.candidates, fit.frequency)
    rows = np.flatnonzero(~tree.leaf & (missing > NOTHING))
    records = np.maximum(fit.sizes.remainder[rows], 0)
    number = 1 + (records / max(float(records.sum()), 1.0) * MOST).astype(np.int64)
    row = np.repeat(rows, number)
    candidate = _pruned_candidate_at(tree, fit, row, draw.random(len(row)) * missing[row])
    return Lost(row, candidate, fit.sizes.remainder[row] / np.repeat(number, number))


def draw_candidates(fit: Fit, node: int, uniform: Reals) -> Ints:
    """A candidate of the node for each uniform number, by frequency."""
    inside = slice(int(fit.candidates.starts[node]), int(fit.candidates.starts[node + 1]))
    edges = np.cumsum(fit.frequency[inside])
    chosen = np.searchsorted(edges, uniform * edges[-1], side="right")
    candidate: Ints = np.minimum(chosen, len(edges) - 1) + inside.start
    return candidate


def _pruned_candidate_at(tree: NoisyTree, fit: Fit, row: Ints, value: Reals) -> Ints:
    """The candidate at ``value`` on the line of those that a row did not keep, laid end to end by frequency.

    The position is moved past every kept candidate that begins at or before it. All rows are searched at once: row r
    has the stretch [r, r + 1) times a span that no value reaches.
    """
    candidates, edges = fit.candidates, np.append(0.0, np.cumsum(fit.frequency))
    remaining, parent = candidates.of_row[1:], tree.parent[1:]
    run = np.append(0.0, np.cumsum(fit.frequency[remaining]))
    first = np.searchsorted(parent, np.arange(len(tree)))
    place = edges[remaining] - edges[candidates.starts[tree.next[parent]]] - (run[:-1] - run[first[parent]])
    span = float(edges[-1]) + 1.0
    passed = np.searchsorted(parent * span + np.clip(place, 0, span - 0.5), row * span + value, side="right")
    start = candidates.starts[tree.next[row]]
    chosen = np.searchsorted(edges, edges[start] + value + run[passed] - run[first[row]], side="right") - 1
    candidate: Ints = np.clip(chosen, start, candidates.starts[tree.next[row] + 1] - 1)
    return candidate


# Estimate -------------------------------------------------------------------------------------------------------------
# Answers to counting questions from a published tree, with intervals.

MODEL_ERROR = 0.35  # standard error of a share p of a node's pruned records, as a part of sqrt(p(1 - p))
RARE = 1 / 2_000  # no share is known to be smaller


@dataclass(frozen=True)
class Estimator:
    """A tree with the sizes fitted to it.

    A question is an array of ``shares`` (T,): of a leaf 1 if its records meet the condition, else 0; of a row that
    was expanded the share of its pruned records that do, as what stands for them has it.
    """

    tree: NoisyTree
    fit: Fit
    nodes: int
    model_error: float = MODEL_ERROR

    @cached_property
    def remaining_records(self) -> float:
        """Records that were kept: the sizes of the leaves."""
        return float(self.fit.sizes.size[self.tree.leaf].sum())

    @cached_property
    def lost_records(self) -> float:
        """Records that were pruned: the remainders."""
        return float(self.fit.sizes.remainder[~self.tree.leaf].sum())

    @property
    def is_mostly_lost(self) -> bool:
        """Return whether nothing was kept, or less than was pruned. It is told from the noisy tree alone."""
        return not self.tree.leaf.any() or self.lost_records > self.remaining_records

    def estimate_baseline(self, shares: Reals) -> tuple[float, float]:
        """The paper's answer, the sum of the noisy sizes of the item sets in question; and the noise's error."""
        leaves = self.tree.leaf & (shares > 0)
        return float(self.tree.size[leaves].sum()), float(np.sqrt(noise_variance(self.tree)[leaves].sum()))

    def estimate_shares(self, shares: Reals) -> tuple[float, float]:
        """Estimate and standard error of the number of records that meet a condition.

        The error is that of the noise, carried through the least squares, and that of the model of what was pruned: of
        the records R_u that were lost at taxonomy node u a share p_u meets the condition, known to
        model_error * sqrt(p_u (1 - p_u)). That is no theorem: tests measure the coverage.
        """
        leaf = self.tree.leaf
        estimate, variance = estimate_sum(
            self.tree, self.fit.sizes, np.where(leaf, shares, 0), np.where(leaf, 0, shares)
        )
        return estimate, float(np.sqrt(variance + self._model_variance(shares)))

    def _model_variance(self, shares: Reals) -> float:
        rows = np.flatnonzero(~self.tree.leaf)
        node, lost = self.tree.next[rows], np.maximum(self.fit.sizes.remainder[rows], 0)
        total = np.bincount(node, weights=lost, minlength=self.nodes)
        met = np.bincount(node, weights=lost * shares[rows], minlength=self.nodes)
        share = np.divide(met, total, out=np.zeros(self.nodes), where=total > 0)
        least = RARE if met.any() else RARE / 10
        share = share if shares.all() else np.clip(share, least, 1 - least)
        return float(((self.model_error * total) ** 2 * share * (1 - share)).sum())


# Remaining records ----------------------------------------------------------------------------------------------------
# Whether a noisy tree kept enough to be published: where more was pruned, its answers rest on a model alone.


def require_remaining(fitted: Estimator, params: Any, what: str, helps: str) -> float:
    """Return the records in what was kept, as the consistent sizes have them.

    ``InfeasibleError`` if nothing was kept or more was pruned, unless the publisher said that it may be. Only the
    publisher learns of that, and what was drawn stays spent: who repeats until something passes tells more than
    epsilon. ``what``: was kept, ``helps``: what keeps more, in words.
    """
    remaining = round(fitted.remaining_records, 1)
    if params.allow_empty or not fitted.is_mostly_lost:
        return remaining
    number = int(fitted.tree.leaf.sum())
    pruned = (
        f"more was pruned (about {fitted.lost_records:,.0f} records) than is in the {number:,} {what}s that were kept"
    )
    raise InfeasibleError(
        f"{f'{pruned} ({fitted.remaining_records:,.0f})' if number else f'no {what} was kept'}, so answers would "
        "rest on a model "
        f"alone; a larger epsilon or {helps} would keep more, and --allow-empty (allow_empty = true) publishes it all "
        f"the same; epsilon {fraction_text(params.epsilon)} was drawn and is spent",
        {"kept_records": remaining, "kept": number, "pruned_records": round(fitted.lost_records, 1)},
    )
