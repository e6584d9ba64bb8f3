"""Whether published records can have come from the stated matrices: tests of a given significance.

From the release alone: in sub-table j a cell with c true records is seen Y times, Y a sum of independent draws with
mean q |T_j| + p c. Hoeffding (1956): its tails beyond the mean are at most those of a binomial with that mean, so a
cell for which every admissible c (1 <= c <= rho1_j |T_j| where protected) is too improbable is a fault.

Against the source: for a set Q of records given by quasi-identifiers, d = sum_j f*_j - n is the difference between
equation 7 and the truth n (m,). Its mean is 0 and

    Cov d = sum_j p_j^-2 (diag(P_j^T c_j) - P_j^T diag(c_j) P_j),

c_j (m_j,) the records of Q in sub-table j by true value, fitted to the known sums over j and over x. d^T Cov^+ d is
chi-square with the rank of Cov as degrees of freedom. Both tails count: values that were not perturbed at all can agree
too well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy

if TYPE_CHECKING:
    from privsql.answers.channel import Floats
    from privsql.mechanisms.randomize.public import Ints, Public

SIGNIFICANCE = 1e-6  # probability that a sound release fails one of the tests
FEWEST = 30.0  # expected records of a value, seen and changed, below which a chi-square would not be one
ROUNDING = 1e-9  # of a difference that must be none, relative to the records
ROUNDS = 200  # of proportional fitting
LARGEST = 2**31 - 1  # records that a flow can hold


def improbable(public: Public) -> list[str]:
    """Cells that no admissible true count explains, at ``SIGNIFICANCE`` over all cells."""
    records = public.records[public.own].astype(np.float64)
    p, q = public.retention[public.own], public.replacement[public.own]
    level = SIGNIFICANCE / (2 * len(records))
    highest, lowest = q + p * public.most / records, q + p / records
    seen, trials = public.totals, public.records[public.own]
    above = (seen > highest * records + 1) & (scipy.special.bdtrc(seen - 1, trials, highest) < level)
    below = (seen < lowest * records - 1) & (scipy.special.bdtr(seen, trials, lowest) < level)
    return [
        f"sub-table {public.own[cell]}, value {public.code[cell]}: {seen[cell]:.0f} records are too "
        f"{'many' if above[cell] else 'few'}"
        for cell in np.flatnonzero(above | below)
    ]


def possible(public: Public, counts: Ints) -> bool:
    """Whether values with ``counts`` (m,) records can be spread over the sub-tables as stated: an integral flow.

    Every cell holds at least 1 record, and at most rho1_j |T_j| where its value is protected.
    """
    tables, values, cells = len(public.records), len(counts), len(public.own)
    if int(counts.sum()) != int(public.records.sum()) or int(counts.sum()) > LARGEST:
        return False
    supply = counts - np.bincount(public.code, minlength=values)
    demand = public.records - public.sizes
    room = public.most.astype(np.int64) - 1
    if supply.min() < 0 or demand.min() < 0 or room.min() < 0:
        return False
    source, sink = values + tables, values + tables + 1
    tails = np.concatenate((np.full(values, source), public.code, values + np.arange(tables)))
    heads = np.concatenate((np.arange(values), values + public.own, np.full(tables, sink)))
    capacity = np.concatenate((supply, room, demand)).astype(np.int32)
    graph = scipy.sparse.csr_array((capacity, (tails, heads)), shape=(sink + 1, sink + 1))
    return int(scipy.sparse.csgraph.maximum_flow(graph, source, sink).flow_value) == int(counts.sum()) - cells


def deviation(public: Public, seen: Floats, truth: Floats) -> float | None:
    """The two-sided p-value of ``seen`` (cells,) published records of a set with ``truth`` (m,) records of each value.

    None where a value has too few records for the test, or too few that change.
    """
    p, q = public.retention[public.own], public.replacement[public.own]
    totals = np.bincount(public.own, seen, minlength=len(public.records)).astype(np.float64)
    counts = _fitted(public, truth, totals)
    expected = q * totals[public.own] + p * counts
    changed = counts * q * (public.sizes - 1)[public.own]
    if min(public.by_value(expected).min(), public.by_value(changed).min()) < FEWEST:
        return None
    difference = public.by_value((seen - q * totals[public.own]) / p) - truth
    covariance = _covariance(public, counts, expected)
    scale = np.sqrt(np.diag(covariance))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    kept = values > 1e-9
    along = vectors.T @ (difference / scale)
    if np.abs(along[~kept]).max(initial=0.0) > ROUNDING * (1 + np.linalg.norm(truth / scale)):
        return 0.0  # a difference that perturbation can't make
    statistic, degrees = float((along[kept] ** 2 / values[kept]).sum()), float(kept.sum())
    return float(2 * min(scipy.special.chdtrc(degrees, statistic), scipy.special.chdtr(degrees, statistic)))


def _fitted(public: Public, truth: Floats, totals: Floats) -> Floats:
    """Counts (cells,) with the given sums by value and by sub-table, nearest to the estimated shares."""
    counts = np.maximum(public.estimated[0], 1e-6)
    for _ in range(ROUNDS):
        counts = counts * (truth / np.maximum(public.by_value(counts), 1e-300))[public.code]
        held = np.bincount(public.own, counts, minlength=len(totals))
        counts = counts * (totals / np.maximum(held, 1e-300))[public.own]
    return np.asarray(counts)


def _covariance(public: Public, counts: Floats, expected: Floats) -> Floats:
    """Cov d (m, m)."""
    m = len(public.protected)
    total = np.zeros((m, m))
    for j in range(len(public.records)):
        cells = np.flatnonzero(public.own == j)
        matrix = public.perturbation(j)
        own = np.diag(expected[cells]) - matrix.T @ (counts[cells][:, None] * matrix)
        total[np.ix_(public.code[cells], public.code[cells])] += own / public.retention[j] ** 2
    return total
