"""Randomization as a ``Mechanism``: plans, answers, explanations and proposals."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import scipy
from sqlglot import exp

from privsql.answers import answer, estimate
from privsql.answers.accuracy import by_questions
from privsql.answers.estimate import Bounds, Level, QuestionOn, chosen, collect_estimates, empty_estimates, sets
from privsql.answers.learned_prior import MOST_RECORDS, Sample, can_teach, comparable, encoded, learned_weights
from privsql.answers.question import EXACT, CountQuery, exact_answer, exact_statement, group_terms, select_terms
from privsql.attacks import adversaries, suite
from privsql.attacks.suite import Suite
from privsql.engine.sqlfiles import Holes, column, every, fill, named, same, table, temp
from privsql.errors import UsageError
from privsql.exact import text
from privsql.mechanisms import contract
from privsql.mechanisms.contract import Alone, Mechanism, Proposal, Table
from privsql.mechanisms.randomize import partition
from privsql.mechanisms.randomize.checks import SQL, bounds, checks, read, source_checks
from privsql.mechanisms.randomize.parameters import Randomize
from privsql.mechanisms.randomize.publish import Perturbed, Public, public, tables, view, write_ranked, write_records
from privsql.model.manifest import LEARNT, SEVERAL, Structure, Words, nothing_longer
from privsql.model.manifest import structure as part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.answers.channel import Channel, Floats
    from privsql.answers.estimate import Observed
    from privsql.answers.learned_prior import Taught
    from privsql.engine.database import Relations
    from privsql.keyed_random import Key
    from privsql.mechanisms.contract import Profiled
    from privsql.mechanisms.randomize.partition import Ints, Partition, Problem, SubTable
    from privsql.model.manifest import Estimate, Manifest
    from privsql.model.records import Records

# Baseline -------------------------------------------------------------------------------------------------------------
# Answers from a randomized release by the papers' formula.
#
# In sub-table j, of |Res_j| records that meet the condition on quasi-identifiers o_j have a perturbed value among the
# s_j asked for. Equation 7 and its variance for a true count f (independent perturbation of every record):
#
#     f* = (o_j - |Res_j| s_j q_j)/p_j,
#     Var f* = [f (p + s q)(1 - p - s q) + (|Res_j| - f) s q (1 - s q)]/p^2,
#
# summed over the sub-tables. It uses nothing but the records asked about, so it is unbiased and can be negative.

BASELINE_FORMULA = (
    "estimate = sum over sub-tables of (o - |Res| s q)/p (equation 7), s values asked for, o records with them"
)


def estimate_baseline(asked: QuestionOn, seen: Observed, public: Public, confidence: float) -> list[Estimate]:
    """The answer's rows, one per group that can be non-empty."""
    outputs, functionals = chosen(asked, seen, len(public.protected))
    if not seen.keys or not outputs:
        return empty_estimates(asked.query)
    summed = tuple(np.zeros((len(seen.keys), len(outputs))) for _ in range(3))
    for j in range(len(public.records)):
        cells = np.flatnonzero(public.own == j)
        wanted = functionals[..., public.code[cells], :]
        own = _subtable(seen.observed[:, cells], wanted, float(public.retention[j]), float(public.replacement[j]))
        summed = tuple(total + part for total, part in zip(summed, own, strict=True))
    mean, variance, room = summed
    unbounded = np.full_like(mean, np.inf)
    parts = Bounds(mean, variance, -unbounded, np.where(room > 0, unbounded, 0))
    return collect_estimates(asked, seen, outputs, parts, Level(confidence))


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


# Answers --------------------------------------------------------------------------------------------------------------
# Answers from a randomized release: exactly, by the papers' formula, or through the channel (``answers.channel``).

FORMULA = (
    "estimate = x^T n, n the posterior mean of the counts per sensitive value given the published records by sub-table "
    "and perturbed value; their expectation is M^T n, M the stacked perturbation matrices (see privsql.channel)"
)


class Answers(answer.Answers):
    """An open release that answers count queries; its public parameters are read once."""

    certain = frozenset()
    records = "perturbed"
    measures = frozenset()

    @cached_property
    def public(self) -> Public:
        """The public parameters, and the records of every cell."""
        everyone = CountQuery((), {"qi": [], "sa": []}, {"qi": [], "sa": []})
        stated = public(self._db)
        return stated.seen(self._db.arrow(self._observed(everyone)))

    @property
    def channel(self) -> Channel:
        """The release's channel."""
        return self.public.channel

    @cached_property
    def _taught(self) -> Taught | None:
        """The prior that the release teaches; none of a release that is too large to be read as a whole."""
        records = self._manifest.published_records
        if records > MOST_RECORDS or not can_teach(self.channel, records):
            return None
        own = self._roles.by_all.read("sub_table")
        named_so = exp.select(*own, *comparable(self._roles), *self._roles.sa_in())
        holes: Holes = {
            "perturbed": named_so.from_(table("perturbed")).subquery(),
            "cells": self._cells(),
            "columns": self._roles.qi("q"),
            "keys": self._roles.qi(),
            "same_value": same("q", "c", self._roles.sa_keys),
        }
        rows = self._db.arrow(fill("randomize/placed", holes))
        names = [field.name for field in self._roles.quasi_identifiers]
        columns = {name: encoded(rows[key]) for name, key in zip(names, self._roles.qi_keys, strict=True)}
        shown = scipy.sparse.eye_array(self.channel.mean.shape[1], format="csr")
        places = rows["cell"].to_numpy().astype(np.int32)
        return learned_weights(self.channel, Sample(places, shown, columns, independent=True))

    def statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """The SQL that reads the release for an answer, and the formula in words."""
        self.known(estimator)
        if query.is_exact:
            return exact_statement(query, table("perturbed")), EXACT
        if estimator == "baseline" and query.measure.kind != "count":
            raise UsageError(f"{query.measure.kind.upper()} needs the estimator 'reconstructed'")
        return self._observed(query), BASELINE_FORMULA if estimator == "baseline" else FORMULA

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """The answer's rows, one per group that can be non-empty; a single row without GROUP BY."""
        if query.is_exact:
            return exact_answer(self._db, query, table("perturbed"))
        asked = QuestionOn(
            self._db,
            query,
            table("perturbed"),
            self.channel,
            independent=True,
            most=self.public.by_value(self.public.most),
            uncertain=self.public.by_value(self.public.estimated[1] ** 2),
            taught=self._taught if estimator != "baseline" else None,
            code=self._roles.by_sa.called("code"),
        )
        rows = self._db.arrow(self._observed(query))
        seen = sets(asked, rows, np.ones(len(rows)))
        if estimator == "baseline":
            return estimate_baseline(asked, seen, self.public, confidence)
        return estimate.estimate_rows(asked, seen, confidence)

    def _observed(self, query: CountQuery) -> exp.Query:
        """The statement: perturbed values of the records that meet the condition on quasi-identifiers."""
        roles, keys = self._roles, [name for name, _ in group_terms(query, "qi")]
        amount = query.measure.amount
        holes: Holes = {
            "perturbed": query.records(table("perturbed")),
            "cells": self._cells(),
            "part": roles.by_all.column("sub_table"),
            "terms": select_terms(query, "qi"),
            "keys": [expression for _, expression in group_terms(query, "qi")],
            "filter": every(query.filters["qi"]),
            "sa": roles.sa_in(),
            "sa_keys": [column(field.name) for field in roles.sensitive],
            "totals": [named(exp.Sum(this=amount), "t")] if amount else [],
            "amounts": [named(exp.column("t", "q"), "amounts")] if amount else [],
            "groups": [column(key) for key in keys],
            "same_value": same("q", "c", roles.sa_keys),
        }
        return fill("randomize/observed", holes)

    def _cells(self) -> exp.Subquery:
        """The cells with their sub-tables and values."""
        roles = self._roles
        values = exp.select(*roles.by_sa.read("code"), *roles.sa_in()).from_(table("privsql_values")).subquery("v")
        cells = exp.select(column("cell", "d"), column("sub_table", "d"), *roles.sa("v"))
        return cells.from_(table("privsql_domains").as_("d")).join(values, on="d.code = v.code").subquery()


# Explanations ---------------------------------------------------------------------------------------------------------
# A randomized release for people: what it promises in sentences, and its sub-tables.

MADE = (
    "Records are put into sub-tables. Every record keeps its sensitive value with a known probability, and otherwise "
    "shows one drawn at random from its sub-table: whatever a record shows can be denied."
)
NOT = (
    "Of values that are too frequent to be protected.",
    "Against people who know the sensitive values of nearly all others of a sub-table, or how many have each.",
    LEARNT,
    "For beliefs in one of several values together.",
    SEVERAL,
    "That somebody is in the table at all, and in which sub-table, is not hidden.",
)


def explain_guarantee(asked: Randomize) -> Words:
    """Restricted (rho1, rho2)-privacy, in sentences."""
    bound = (
        f"Of a value that at most {float(asked.rho1):.3g} of the records have: whoever believed in it, of a person, "
        "no more than its frequency in the sub-table says, believes in it with a probability of at most "
        f"{float(asked.rho2):.3g} once the published record is seen."
    )
    return Words((MADE, bound), NOT)


def describe_structure(db: Relations, _: Manifest) -> list[Structure]:
    """Sub-tables: records, values, and how many of the values are kept."""
    given = public(db)
    rows = [
        (f"sub-table {j}", int(records), int(size), round(float(kept), 4))
        for j, (records, size, kept) in enumerate(zip(given.records, given.sizes, given.retention, strict=True))
    ]
    kept = float(given.retention @ given.records / given.records.sum())
    said = f"On average {kept:.1%} of the values are kept; the others are drawn at random from those of the sub-table."
    return [part("Sub-tables", said, ("sub-table", "records", "different values", "share kept"), rows, 1)]


# The mechanism --------------------------------------------------------------------------------------------------------
# Randomization as a mechanism (``mechanisms.contract``): partition over counts, perturb and publish through SQL.


def plan(db: Relations, source: Records, asked: Randomize) -> dict[str, Any]:  # noqa: ARG001 (all mechanisms take it)
    """The facts of the partition, and for the publisher alone the partition itself."""
    problem = partition.state_problem(source.counts, source.labels, asked)
    found = partition.find_partition(problem, asked.algorithm, asked.objective)
    subtables = partition.check_partition(problem, found)
    return _facts(problem, found, subtables) | {"partition": _partition(found, subtables, source.labels)}


def _partition(found: Partition, subtables: Sequence[SubTable], labels: Sequence[str]) -> list[dict[str, Any]]:
    """Every sub-table: public parameters, and the records of each value in the initial groups that it unites."""
    groups = found.united or found.parts[:, None]

    def held(group: Ints) -> dict[str, int]:
        return {labels[code]: int(group[code]) for code in np.flatnonzero(group).tolist()}

    return [
        {
            "records": one.records,
            "values": one.size,
            "rho1": text(one.rho1),
            "gamma": text(one.gamma),
            "retention": float(one.retention),
            "groups": [held(group) for group in united],
        }
        for one, united in zip(subtables, groups, strict=True)
    ]


def publish(db: Relations, source: Records, asked: Randomize, key: Key) -> dict[str, Any]:
    """Make ``perturbed`` and the tables of public parameters in database ``release``; returns the facts."""
    problem = partition.state_problem(source.counts, source.labels, asked)
    found = partition.find_partition(problem, asked.algorithm, asked.objective)
    subtables = partition.check_partition(problem, found)
    gammas = [str(subtable.gamma) for subtable in subtables]
    roles = source.roles
    db.put("listed", _cells(found))
    listed: Holes = {"listed": temp("listed"), "domain": temp("domain"), "sa": roles.sa("d")}
    db.make("cells", fill("randomize/cells", listed))
    if source.order == "portable":
        write_ranked(db, source, found.parts, subtables, key)
    else:
        noise = key.stream("randomize", found.parts.tolist(), gammas, tuple(source.labels))
        write_records(db, source, found.parts, subtables, noise)
    db.make("privsql_domains", fill("randomize/domains", {"cells": temp("cells")}), into="release")
    db.put("flags", pa.table({"code": np.arange(len(problem.counts)), "protected": problem.protected}))
    holes: Holes = {"flags": temp("flags"), "domain": temp("domain"), "sa": roles.sa_out("d")}
    holes |= roles.by_sa.names("code", "protected")
    db.make("privsql_values", fill("randomize/values", holes), into="release")
    db.put("given", _parameters(subtables))
    db.make("privsql_subtables", fill("randomize/subtables", {"given": temp("given")}), into="release")
    db.drop("listed", "cells", "flags", "given")
    return _facts(problem, found, subtables)


def _cells(found: Partition) -> pa.Table:
    """(cell, sub_table, code, place) of every value of every sub-table."""
    own, code = np.nonzero(found.parts)
    sizes = (found.parts > 0).sum(axis=1)
    place = np.arange(len(own)) - (np.cumsum(sizes) - sizes)[own]
    columns = {"cell": np.arange(len(own)), "sub_table": own, "code": code, "place": place}
    return pa.table({name: array.astype(np.int32) for name, array in columns.items()})


def _parameters(subtables: Sequence[SubTable]) -> pa.Table:
    return pa.table(
        {
            "sub_table": np.arange(len(subtables)),
            "records": [t.records for t in subtables],
            "size": [t.size for t in subtables],
            "rho1_numerator": [str(t.rho1.numerator) for t in subtables],
            "rho1_denominator": [str(t.rho1.denominator) for t in subtables],
            "gamma_numerator": [str(t.gamma.numerator) for t in subtables],
            "gamma_denominator": [str(t.gamma.denominator) for t in subtables],
        }
    )


def _facts(problem: Problem, found: Partition, subtables: Sequence[SubTable]) -> dict[str, Any]:
    """What manifest and output state of a partition."""
    whole, n = partition.check_partition(problem, partition.find_partition(problem, "up")), problem.records
    return {
        "subtables": len(subtables),
        "groups": found.groups,
        "bound": sum(subtable.error(n, problem.delta) for subtable in subtables),
        "bound_up": sum(subtable.error(n, problem.delta) for subtable in whole),
        "retention": retention(subtables),
        "retention_up": retention(whole),
        "optimal": found.optimal,
    }


def retention(subtables: Sequence[SubTable]) -> float:
    """Average probability that a value is retained, sum_j (|T_j|/n) p_j."""
    kept = sum((t.retention * t.records for t in subtables), Fraction(0))
    return float(kept / sum(t.records for t in subtables))


def propose(db: Relations, source: Profiled) -> Proposal:  # noqa: ARG001 (all mechanisms take it)
    """Protect every value that is not more frequent than all others together, up to three times its prior."""
    counts = source.records().counts
    n = sum(counts)
    shares = [Fraction(count, n) for count in counts]
    rho1 = max((share for share in shares if share <= Fraction(1, 3)), default=min(shares))
    rounded = Fraction(-(-rho1.numerator * 1000 // rho1.denominator), 1000)
    rho2 = min(3 * rounded, (1 + rounded) / 2)
    return Proposal({"kind": "randomize", "algorithm": "pp", "rho1": str(rounded), "rho2": str(rho2)})


def promise(asked: Randomize) -> str:
    """Restricted (rho1, rho2)-privacy."""
    return f"<= {asked.rho2} if f <= {asked.rho1}"


def figures(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Sub-tables, retention and bound beside those of the whole table."""
    made = f"{facts['subtables']} of {facts['groups']} groups{', the best possible' if facts['optimal'] else ''}"
    return [
        ("sub-tables", made),
        ("retention", f"{facts['retention']:.1%}  (whole table {facts['retention_up']:.1%})"),
        ("error bound", f"{facts['bound']:.4g}  (whole table {facts['bound_up']:.4g})"),
    ]


MECHANISM = Mechanism(
    parameters=Randomize,
    shape=Table(numeric=False, most_numbers=None),
    composition=Alone(),
    sql=SQL,
    relations=("perturbed", "privsql_subtables", "privsql_domains", "privsql_values"),
    read=read,
    plan=plan,
    algorithms=contract.refuse_comparison(
        "'up' and 'pp' keep different shares of the values as they are; compare with privsql compare"
    ),
    publish=publish,
    tables=tables,
    view=view,
    checks=checks,
    long_checks=nothing_longer,
    measured=lambda _db, _manifest: {},
    bounds=bounds,
    source_checks=source_checks,
    answers=Answers,
    evaluate=by_questions,
    adversaries=Suite(
        scene=Perturbed,
        adversaries=(
            adversaries.LINKAGE_ADVERSARY,
            adversaries.ORDER_ADVERSARY,
            adversaries.IDENTIFIERS_ADVERSARY,
            adversaries.absence_adversary(lambda _: None),
            adversaries.NEGATIVE_ADVERSARY,
            suite.LEARNING_ADVERSARY,
            adversaries.GIVING,
        ),
        combining=(),
        quick=Perturbed,
    ),
    promise=promise,
    words=explain_guarantee,
    structure=describe_structure,
    advice=(
        "a lower rho2: less of every value is kept",
        "algorithm = 'up': sub-tables with few values leave few to choose among",
        "coarser quasi-identifiers (age in bands, regions for places), or fewer: less to learn from",
    ),
    propose=propose,
    warnings=lambda _: [],
    figures=figures,
)
