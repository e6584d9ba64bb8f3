"""Check a perturbed release: exact bounds, retention probabilities, and frequencies against the source.

The checks share nothing with the search for sub-tables: they read the published tables and the manifest, and use SQL,
exact fractions and tests of a stated significance. The only exception is a check against the source: it repeats the
search, and compares the number of sub-tables and whether they are optimal with the manifest.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from math import isclose, log, sqrt
from typing import TYPE_CHECKING

import numpy as np
import scipy
from sqlglot import exp

from privsql.engine.sqlfiles import Holes, column, fill, temp_table
from privsql.errors import UsageError
from privsql.exact import fraction_text
from privsql.mechanisms.perturb import plan
from privsql.mechanisms.perturb.tables import FRACTIONS, Ints, PublicParameters, read_public
from privsql.model.arrays import largest_transport
from privsql.model.checks import NO_BELIEF, Check, CheckedRelease, VerifiedBound, in_order

if TYPE_CHECKING:
    from collections.abc import Callable

    from privsql.answers.channel import Floats
    from privsql.engine.database import Relations
    from privsql.mechanisms.perturb.parameters import Randomize, RandomizeFacts
    from privsql.model.records import Records

    PerturbedRelease = CheckedRelease[Randomize, RandomizeFacts]

# Agreement ------------------------------------------------------------------------------------------------------------
# Tests of a given significance show whether the published records can come from the stated probabilities.
#
# With the release alone: if c records of sub-table j truly have a value, it is published Y times, where Y is a sum of
# independent draws with mean q |T_j| + p c. Beyond the mean, its tails are at most those of a binomial with that mean
# (Hoeffding 1956). So it is a fault if Y is too improbable for every possible c (1 <= c <= rho1_j |T_j| if protected).
#
# With the source: for a set Q of records given by quasi-identifiers, let d = sum_j f*_j - n be the difference between
# equation 7 and the true counts n (m,). Its mean is 0 and
#
#     Cov d = sum_j p_j^-2 (diag(P_j^T c_j) - P_j^T diag(c_j) P_j),
#
# where c_j (m_j,) counts the records of Q in sub-table j by true value, fitted to the known sums over sub-tables and
# over values. d^T Cov^+ d is chi-square with the rank of Cov as degrees of freedom. Both tails count: values that were
# not perturbed at all would agree too well.

SIGNIFICANCE = 1e-6  # probability that a sound release fails one of the tests
FEWEST = 30.0  # with fewer expected records of a value, published or changed, the statistic is not chi-square
ROUNDING = 1e-9  # rounding error of a difference that must be 0, relative to the records
ROUNDS = 200  # rounds of proportional fitting
LARGEST = 2**31 - 1  # the most records that the flow solver can count


def improbable_cells(public: PublicParameters) -> list[str]:
    """Return the cells whose published count is too improbable for any true count that they may have, one line each.

    A cell is a sub-table with one of its values. A sound release fails with probability ``SIGNIFICANCE`` at most, over
    all cells together.
    """
    records = public.records[public.sub_tables].astype(np.float64)
    p, q = public.retention[public.sub_tables], public.replacement[public.sub_tables]
    level = SIGNIFICANCE / (2 * len(records))
    highest, lowest = q + p * public.most_records / records, q + p / records
    observed, trials = public.totals, public.records[public.sub_tables]
    above = (observed > highest * records + 1) & (scipy.special.bdtrc(observed - 1, trials, highest) < level)
    below = (observed < lowest * records - 1) & (scipy.special.bdtr(observed, trials, lowest) < level)
    return [
        f"sub-table {public.sub_tables[cell]}, value {public.code[cell]}: {observed[cell]:.0f} records are too "
        f"{'many' if above[cell] else 'few'}"
        for cell in np.flatnonzero(above | below)
    ]


def is_possible(public: PublicParameters, counts: Ints) -> bool:
    """Return whether the source's records can be spread over the sub-tables as the release states.

    Each sub-table must hold its number of records, and every cell at least 1 record. A cell of a protected value holds
    at most the share rho1 of its sub-table. A maximum flow in integers decides this.

    Args:
        public: The stated parameters.
        counts: The number of records of each value in the source (m,).
    """
    if int(counts.sum()) != int(public.records.sum()) or int(counts.sum()) > LARGEST:
        return False
    supply = counts - np.bincount(public.code, minlength=len(counts))
    demand = public.records - public.domain_sizes
    room = public.most_records.astype(np.int64) - 1
    if supply.min() < 0 or demand.min() < 0 or room.min() < 0:
        return False
    moved = largest_transport(supply, demand, (public.code, public.sub_tables), room)
    return moved == int(counts.sum()) - len(public.sub_tables)


def deviation_p_value(public: PublicParameters, published: Floats, truth: Floats) -> float | None:
    """Test whether the published values of a set of records agree with their true values, by a chi-square statistic.

    Args:
        public: The stated parameters.
        published: The number of published records of the set in each cell (cells,).
        truth: The number of records of the set with each value in the source (m,).

    Returns:
        The two-sided p-value. None if a value has too few records for the test, or too few of them change.
    """
    p, q = public.retention[public.sub_tables], public.replacement[public.sub_tables]
    totals = np.bincount(public.sub_tables, published, minlength=len(public.records)).astype(np.float64)
    # Fit counts by cell with the known sums by value and by sub-table, starting from the estimated counts.
    counts = np.maximum(public.estimated[0], 1e-6)
    for _ in range(ROUNDS):
        counts = counts * (truth / np.maximum(public.by_value(counts), 1e-300))[public.code]
        held = np.bincount(public.sub_tables, counts, minlength=len(totals))
        counts = counts * (totals / np.maximum(held, 1e-300))[public.sub_tables]
    expected = q * totals[public.sub_tables] + p * counts
    changed = counts * q * (public.domain_sizes - 1)[public.sub_tables]
    if min(public.by_value(expected).min(), public.by_value(changed).min()) < FEWEST:
        return None
    difference = public.by_value((published - q * totals[public.sub_tables]) / p) - truth
    covariance = np.zeros((len(truth), len(truth)))
    for j in range(len(public.records)):
        cells = np.flatnonzero(public.sub_tables == j)
        matrix, code = public.perturbation_matrix(j), public.code[cells]
        moved = np.diag(expected[cells]) - matrix.T @ (counts[cells][:, None] * matrix)
        covariance[np.ix_(code, code)] += moved / public.retention[j] ** 2
    scale = np.sqrt(np.diag(covariance))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    is_positive = values > 1e-9
    along = vectors.T @ (difference / scale)
    if np.abs(along[~is_positive]).max(initial=0.0) > ROUNDING * (1 + np.linalg.norm(truth / scale)):
        return 0.0  # perturbation can't cause this difference
    statistic, degrees = float((along[is_positive] ** 2 / values[is_positive]).sum()), float(is_positive.sum())
    return float(2 * min(scipy.special.chdtrc(degrees, statistic), scipy.special.chdtr(degrees, statistic)))


# Checks ---------------------------------------------------------------------------------------------------------------


def release_checks(release: PerturbedRelease) -> list[Check]:
    """Return the checks that need no source: beliefs, agreement of tables, possible frequencies, order, and facts."""
    roles, query = release.roles, release.fill_query
    release.db.create_view("v_cells", query("randomize/cells_stated", sa=roles.sa_columns("v")))
    values, domains, subtables = map(release.view, ("values", "domains", "subtables"))
    outside = query("verify/outside_domain", sa=roles.sa_columns("p"), same_value="p c")
    canonical = ["sub_table", *roles.qi_keys, *roles.sa_keys]

    def numbered(relation: exp.Table, number: str, order: list[exp.Expr]) -> exp.Query:
        return fill("verify/ranks_true", {"table": relation, "number": column(number), "order": order})

    return release.list_checks(
        {
            "every sub-table keeps posteriors within rho2": _excessive_posteriors,
            "sub-tables hold the stated records and values": query("verify/subtables_true"),
            "perturbed values belong to their domains": outside,
            "domains hold the listed values, and all of them": query("verify/domains_known"),
            "values are numbered in canonical order": numbered(values, "code", roles.sa_columns()),
            "cells are numbered in canonical order": numbered(domains, "cell", [column("sub_table"), column("code")]),
            "sub-tables are numbered in order": numbered(subtables, "sub_table", [column("sub_table")]),
            "the values' rows lie in order": in_order(values, ["code"], strict=True),
            "the domains' rows lie in order, once each": in_order(domains, ["sub_table", "code"], strict=True),
            "the sub-tables' rows lie in order": in_order(subtables, ["sub_table"], strict=True),
            "perturbed rows lie in canonical order": in_order(release.view("perturbed"), canonical, strict=False),
            f"published frequencies are possible under the stated matrices (significance {SIGNIFICANCE:g})": (
                lambda one: improbable_cells(_read_public(one))
            ),
            "bound, retention, skew and records are as stated": _wrong_claims,
        }
    )


def posterior_bounds(release: PerturbedRelease) -> list[VerifiedBound]:
    """Return for each value its bound rho2, and the highest posterior belief that its sub-tables allow.

    A value that is not protected has no bound.
    """
    (_, rho2), stated = release.params.odds_bounds, _read_public(release)
    rows = _read_exact_parameters(release.db)
    highest = {j: gamma * rho1 / (gamma * rho1 + 1 - rho1) for j, _, _, rho1, gamma in rows}
    result = []
    for code, (name, protected) in enumerate(release.list_values("protected")):
        reached = max(highest[int(j)] for j in stated.sub_tables[stated.code == code])
        known = (fraction_text(rho2), fraction_text(reached)) if protected else ("none: not protected", NO_BELIEF)
        result.append(VerifiedBound(name, *known))
    return result


def source_checks(release: PerturbedRelease, source: Records, params: Randomize) -> list[Check]:
    """Return the checks that values, quasi-identifiers and sub-tables are those of the source.

    Published values must also be as frequent as the source's values and the stated probabilities make likely.

    Args:
        release: The release.
        source: The records, which lie in relation ``records``.
        params: The parameters of the specification.
    """
    source.sort_records()
    counts = np.array(source.counts, dtype=np.int64)
    checks: dict[str, Callable[[PerturbedRelease], list[str] | exp.Query]] = {
        "the partition is the specification's": partial(_wrong_partition, source, params),
        "bound and retention of the whole table are as stated": partial(_wrong_whole_table, source, params),
        "sensitive values and who is protected are the source's": partial(_wrong_values, source, params),
        "quasi-identifiers are the source's": release.compare_people(source, "perturbed"),
        "the source's values fit the stated sub-tables": lambda one: (
            []
            if is_possible(_read_public(one), counts)
            else ["no spread of the source's records over the sub-tables meets their sizes and rho1"]
        ),
        f"perturbed frequencies agree with the stated matrices (chi-square, significance {SIGNIFICANCE:g})": (
            _wrong_frequencies
        ),
    }
    return release.list_checks(checks)


def _read_exact_parameters(db: Relations) -> list[tuple[int, int, int, Fraction, Fraction]]:
    """Read (number, records, number of values, rho1, gamma) of each sub-table, the last two as exact fractions.

    rho1 is the highest frequency of a protected value, and gamma says how many times likelier a record keeps its value
    than it gets any given other one.

    Raises:
        UsageError: A number is missing, or a denominator is not positive.
    """
    listed = exp.select("sub_table", "records", "size", *FRACTIONS).from_(temp_table("v_subtables"))
    rows = db.rows(listed.order_by("sub_table"))
    if any(part is None for row in rows for part in row) or any(row[4] <= 0 or row[6] <= 0 for row in rows):
        raise UsageError("a parameter of a sub-table is missing or no fraction")
    numbers = (map(int, row) for row in rows)
    return [(j, n, m, Fraction(a, b), Fraction(c, d)) for j, n, m, a, b, c, d in numbers]


def _excessive_posteriors(release: PerturbedRelease) -> list[str]:
    """Return the sub-tables in which the belief in a protected value can exceed rho2, one line each.

    If a record shows the value, a prior belief f in it becomes the posterior gamma f/(gamma f + 1 - f). Here gamma says
    how many times likelier a record keeps its value than it gets any given other one. The posterior rises with f, so f
    = rho1 of the sub-table is the worst case. If another value is published, the posterior is lower.
    """
    (_, rho2), wrong = release.params.odds_bounds, []
    for j, records, _, rho1, gamma in _read_exact_parameters(release.db):
        held = rho1 * records
        whole = held.denominator == 1 or rho1 == release.params.declared_rho1
        if not (0 < rho1 < rho2 and gamma > 1 and whole):
            wrong.append(f"sub-table {j}: rho1 {rho1}, gamma {gamma} are no parameters for rho2 {rho2}")
        elif gamma * rho1 / (gamma * rho1 + 1 - rho1) > rho2:
            wrong.append(f"sub-table {j}: gamma {gamma} lets a prior of {rho1} exceed {rho2}")
    return wrong


def _read_public(release: PerturbedRelease, condition: exp.Expr | None = None) -> PublicParameters:
    """Read the public parameters with the number of published records of every cell.

    Args:
        release: The release.
        condition: The condition on the records that are counted; None for all records.
    """
    counted = release.fill_query("verify/cell_counts", condition=condition or exp.true(), same_value="p c")
    stated = read_public(release.db, *map(release.view, ("subtables", "domains", "values")))
    return stated.with_totals(release.db.arrow(counted))


def _wrong_claims(release: PerturbedRelease) -> list[str]:
    """Return which stated facts differ from those that the published parameters of sub-tables imply, one line each.

    These facts are the numbers of records and sub-tables, the error bound, the retention and the skew (see
    ``RandomizeFacts``).
    """
    facts, params, rows = release.facts, release.params, _read_exact_parameters(release.db)
    _read_public(release)  # raises an error if a number below is no valid divisor
    n = sum(records for _, records, _, _, _ in rows)
    scale = 2 * sqrt(log(2 / float(params.delta)))
    bound = sum(sqrt(t) / n * scale * (m / (float(gamma) - 1) + 1) for _, t, m, _, gamma in rows)
    retention = sum(t * (gamma - 1) / (m - 1 + gamma) for _, t, m, _, gamma in rows) / n
    skew = sum(t * max(m - 2, 0) / (gamma - 1) for _, t, m, _, gamma in rows) / n
    claims = {
        f"{facts.subtables} sub-tables, but {len(rows)} are listed": facts.subtables == len(rows),
        f"{facts.groups} groups make {len(rows)} sub-tables": facts.groups >= len(rows),
        f"bound {facts.bound}": isclose(facts.bound, bound, rel_tol=1e-9),
        f"bound {facts.bound} exceeds that of the whole table": facts.bound <= facts.bound_up * (1 + 1e-12),
        f"retention {facts.retention}": isclose(facts.retention, float(retention), rel_tol=1e-9),
        f"skew {facts.skew}": isclose(facts.skew, float(skew), rel_tol=1e-9),
        "algorithm up has one sub-table, and its bound is that of the whole table": release.algorithm != "up"
        or (len(rows), facts.bound, facts.retention) == (1, facts.bound_up, facts.retention_up),
        f"algorithm {release.algorithm}": release.algorithm == params.algorithm,
    }
    return [*release.compare_records(n), *(wrong for wrong, holds in claims.items() if not holds)]


def _wrong_partition(source: Records, params: Randomize, release: PerturbedRelease) -> list[str]:
    """Repeat the search for sub-tables on the source, and return the facts that it finds otherwise than stated."""
    problem = plan.state_problem(source.counts, source.labels, params)
    solution = plan.find_partition(problem, params.algorithm, params.objective)
    found = {"groups": solution.groups, "optimal": solution.optimal, "subtables": len(solution.parts)}
    return release.compare_facts(found)


def _wrong_whole_table(source: Records, params: Randomize, release: PerturbedRelease) -> list[str]:
    """Compute the error bound and the retention if the whole table were one sub-table, from the source.

    The manifest states them for comparison. The result has a line for each that differs.
    """
    n, m = sum(source.counts), len(source.counts)
    least, rho2 = params.odds_bounds
    largest = max((Fraction(o, n) for o in source.counts if Fraction(o, n) <= least), default=Fraction(0))
    rho1 = params.declared_rho1 or largest
    if not largest or not 0 < rho1 < rho2:
        return ["the source has no protected value"]
    gamma = rho2 * (1 - rho1) / (rho1 * (1 - rho2))
    bound = 2 * sqrt(log(2 / float(params.delta)) / n) * float(m / (gamma - 1) + 1)
    result = {"bound_up": bound, "retention_up": float((gamma - 1) / (m - 1 + gamma))}
    return [
        f"{name} {getattr(release.facts, name)}, from the source {value}"
        for name, value in result.items()
        if not isclose(getattr(release.facts, name), value, rel_tol=1e-5)  # the amplification may be rounded down
    ]


def _wrong_values(source: Records, params: Randomize, release: PerturbedRelease) -> list[str]:
    """Return the values that are not those of the source, or are wrongly marked as protected, one line each."""
    stated, n = {(name, bool(flag)) for name, flag in release.list_values("protected")}, sum(source.counts)
    rho1, _ = params.odds_bounds
    result = [(name, Fraction(o, n) <= rho1) for name, o in zip(source.labels, source.counts, strict=True)]
    return [f"value {name}: protected is {flag}" for name, flag in sorted(stated ^ set(result))]


def _wrong_frequencies(release: PerturbedRelease) -> list[str]:
    """Test published values against the source; return the sets of records that fail.

    The sets are all records, and for every quasi-identifier the records with its most frequent value.
    """
    db, stated, roles = release.db, _read_public(release), release.roles
    sets: dict[str, exp.Expr | None] = {"all records": None}
    for key, field in zip(roles.qi_keys, roles.quasi_identifiers, strict=True):
        most = fill("verify/most_frequent", {"table": temp_table("records"), "column": column(key)})
        sets[f"most frequent {field.name}"] = exp.NullSafeEQ(this=column(key), expression=most.subquery())
    wrong = []
    for name, condition in sets.items():
        truth = np.zeros(len(stated.protected))
        holes: Holes = {"records": temp_table("records"), "filter": condition or exp.true()}
        for code, records in db.rows(release.fill_query("verify/source_values", **holes, same_value="r v")):
            truth[int(code)] = records
        result = deviation_p_value(stated, _read_public(release, condition).totals, truth)
        if result is not None and result < SIGNIFICANCE / len(sets):
            wrong.append(f"{name}: p-value {result:.2g}")
    return wrong
