"""Perturbation of sensitive values: plans, answers, explanations, proposals, and the mechanism."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import scipy
from sqlglot import exp

from privsql.answers import answer, estimate
from privsql.answers.accuracy import by_questions
from privsql.answers.estimate import (
    ConfidenceLevel,
    CountBounds,
    ReleaseQuestion,
    choose_functionals,
    collect_estimates,
    empty_estimates,
    read_sets,
)
from privsql.answers.learned_prior import (
    MOST_RECORDS,
    Sample,
    can_teach,
    comparable_columns,
    encode_values,
    learn_from_release,
)
from privsql.answers.sql.question import CountQuery, observation_holes
from privsql.attacks import adversaries, suite
from privsql.engine.sqlfiles import Holes, column, fill, same_columns, table, temp_table
from privsql.errors import UsageError
from privsql.exact import fraction_text
from privsql.mechanisms.base import (
    NO_CURVE,
    WEIGHTED,
    Alternative,
    AlternativeMeasure,
    Alternatives,
    Mechanism,
    NoComposition,
    Proposal,
    TableShape,
)
from privsql.mechanisms.perturb import checks, plan
from privsql.mechanisms.perturb.parameters import PlannedSubTable, Randomize, RandomizeFacts, RandomizePlan
from privsql.mechanisms.perturb.publish import (
    TABLES,
    PerturbedView,
    PublicParameters,
    read_public,
    release_functions,
    release_view,
    write_ranked,
    write_records,
)
from privsql.model.explanations import LEARNT, LINKED, SEVERAL, ReleasePromises, Structure
from privsql.model.explanations import make_structure as part
from privsql.model.parameters import Facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.answers.accuracy import Evaluated, EvaluationContext
    from privsql.answers.channel import Channel, Floats
    from privsql.answers.estimate import RecordSets
    from privsql.answers.learned_prior import TaughtPrior
    from privsql.attacks.scene import Finding, ReleaseView
    from privsql.attacks.suite import Adversary, JointAttack, LearningRisk
    from privsql.engine.database import IntervalFunctions, Relations
    from privsql.keyed_random import Key
    from privsql.mechanisms.base import Curve, Figure, ProfiledSource, Views
    from privsql.mechanisms.perturb.plan import Partition, PartitionProblem, SubTable
    from privsql.model.checks import Check, CheckedRelease, VerifiedBound
    from privsql.model.estimates import Estimate
    from privsql.model.manifest import Manifest
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


def estimate_baseline(
    question: ReleaseQuestion, observed: RecordSets, public: PublicParameters, confidence: float
) -> list[Estimate]:
    """The answer's rows, one per group that can be non-empty."""
    outputs, functionals = choose_functionals(question, observed, len(public.protected))
    if not observed.keys or not outputs:
        return empty_estimates(question.query)
    summed = tuple(np.zeros((len(observed.keys), len(outputs))) for _ in range(3))
    for j in range(len(public.records)):
        cells = np.flatnonzero(public.sub_tables == j)
        wanted = functionals[..., public.code[cells], :]
        p, q = float(public.retention[j]), float(public.replacement[j])
        estimated = _estimate_subtable(observed.observed[:, cells], wanted, p, q)
        summed = tuple(total + part for total, part in zip(summed, estimated, strict=True))
    mean, variance, room = summed
    unbounded = np.full_like(mean, np.inf)
    parts = CountBounds(mean, variance, -unbounded, np.where(room > 0, unbounded, 0))
    return collect_estimates(question.query, observed, outputs, parts, ConfidenceLevel(confidence))


def _estimate_subtable(observed: Floats, wanted: Floats, p: float, q: float) -> tuple[Floats, Floats, Floats]:
    """f*, its variance, and the number s of values asked for in this sub-table, each (G, F)."""
    result = np.asarray(np.einsum("gc,gcf->gf", observed, np.broadcast_to(wanted, (len(observed), *wanted.shape[-2:]))))
    totals = observed.sum(axis=1)[:, None]
    s = np.broadcast_to(wanted.sum(axis=-2), result.shape)
    estimate = (result - totals * s * q) / p
    f = np.clip(estimate, 0, totals)
    inside, outside = p + s * q, s * q
    variance = (f * inside * (1 - inside) + (totals - f) * outside * (1 - outside)) / p**2
    none = s == 0
    return np.where(none, 0, estimate), np.where(none, 0, variance), np.where(none, 0, s)


# Answers --------------------------------------------------------------------------------------------------------------

FORMULA = (
    "estimate = x^T n, n the posterior mean of the counts per sensitive value given the published records by sub-table "
    "and perturbed value; their expectation is M^T n, M the stacked perturbation matrices (see privsql.channel)"
)


class RandomizeAnswers(answer.Answers):
    """An open release that answers count queries; its public parameters are read once."""

    certain = frozenset()
    records = "perturbed"
    measures = frozenset()

    @cached_property
    def public_parameters(self) -> PublicParameters:
        """The public parameters, and the records of every cell."""
        everyone = CountQuery((), {"qi": [], "sa": []}, {"qi": [], "sa": []})
        stated = read_public(self._db)
        return stated.with_totals(self._db.arrow(self._observation_query(everyone)))

    @property
    def channel(self) -> Channel:
        return self.public_parameters.channel

    @cached_property
    def _learned_prior(self) -> TaughtPrior | None:
        """The prior that the release teaches; none of a release that is too large to be read as a whole."""
        records = self._manifest.published_records
        if records > MOST_RECORDS or not can_teach(self.channel, records):
            return None
        own = self._roles.by_all.select_columns("sub_table")
        named_so = exp.select(*own, *comparable_columns(self._roles), *self._roles.sa_in())
        holes: Holes = {
            "perturbed": named_so.from_(table("perturbed")).subquery(),
            "cells": self._cells_query(),
            "columns": self._roles.qi_columns("q"),
            "keys": self._roles.qi_columns(),
            "same_value": same_columns("q", "c", self._roles.sa_keys),
        }
        rows = self._db.arrow(fill("randomize/placed", holes))
        names = [field.name for field in self._roles.quasi_identifiers]
        columns = {name: encode_values(rows[key]) for name, key in zip(names, self._roles.qi_keys, strict=True)}
        shown = scipy.sparse.eye_array(self.channel.mean.shape[1], format="csr")
        places = rows["cell"].to_numpy().astype(np.int32)
        return learn_from_release(self.channel, Sample(places, shown, columns))

    def make_statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        if estimator == "baseline" and query.measure.kind != "count":
            raise UsageError(f"{query.measure.kind.upper()} needs the estimator 'reconstructed'")
        return self._observation_query(query), BASELINE_FORMULA if estimator == "baseline" else FORMULA

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        question = ReleaseQuestion(
            self._db,
            query,
            table("perturbed"),
            self.channel,
            independent=True,
            most=self.public_parameters.by_value(self.public_parameters.most_records),
            uncertain=self.public_parameters.by_value(self.public_parameters.estimated[1] ** 2),
            taught=self._learned_prior if estimator != "baseline" else None,
            code=self._roles.by_sa.column_name("code"),
        )
        rows = self._db.arrow(self._observation_query(query))
        observed = read_sets(question, rows, np.ones(len(rows)))
        if estimator == "baseline":
            return estimate_baseline(question, observed, self.public_parameters, confidence)
        return estimate.estimate_rows(question, observed, confidence)

    def _observation_query(self, query: CountQuery) -> exp.Query:
        """The statement: perturbed values of the records that meet the condition on quasi-identifiers."""
        roles = self._roles
        holes: Holes = {
            "perturbed": query.join_lookups(table("perturbed")),
            "cells": self._cells_query(),
            "part": roles.by_all.as_column("sub_table"),
            "sa": roles.sa_in(),
            "sa_keys": [column(field.name) for field in roles.sensitive],
            "same_value": same_columns("q", "c", roles.sa_keys),
        }
        return fill("randomize/observed", holes | observation_holes(query))

    def _cells_query(self) -> exp.Subquery:
        """The cells with their sub-tables and values."""
        roles = self._roles
        values = exp.select(*roles.by_sa.select_columns("code"), *roles.sa_in()).from_(table("privsql_values"))
        cells = exp.select(column("cell", "d"), column("sub_table", "d"), *roles.sa_columns("v"))
        listed = cells.from_(table("privsql_domains").as_("d")).join(values.subquery("v"), on="d.code = v.code")
        return listed.subquery()


# Explanations ---------------------------------------------------------------------------------------------------------

MADE = (
    "Records are put into sub-tables. Every record keeps its sensitive value with a known probability, and otherwise "
    "shows one drawn at random from its sub-table. So everyone can deny the value that is published."
)
NOT = (
    "Values that are too frequent to be protected have no bound.",
    "An attacker who knows the values of nearly all others of a sub-table, or how many have each, learns more.",
    LINKED,
    LEARNT,
    "The belief in one of several values together has no bound.",
    SEVERAL,
    "The release does not hide who is in the table, and in which sub-table.",
)


def explain_guarantee(params: Randomize) -> ReleasePromises:
    """Restricted (rho1, rho2)-privacy, in sentences."""
    rho1, rho2 = map(float, params.odds_bounds)
    bound = (
        f"Take a value that at most {rho1:.3g} of the records have. An attacker who believes it of a record with at "
        f"most its frequency in the sub-table believes it with at most {rho2:.3g} after seeing the published record."
    )
    return ReleasePromises((MADE, bound), NOT)


def describe_structure(db: Relations) -> list[Structure]:
    """Sub-tables: records, values, and how many of the values are kept."""
    parameters = read_public(db)
    rows = [
        (f"sub-table {j}", int(records), int(size), round(float(retained), 4))
        for j, (records, size, retained) in enumerate(
            zip(parameters.records, parameters.domain_sizes, parameters.retention, strict=True)
        )
    ]
    retained = float(parameters.retention @ parameters.records / parameters.records.sum())
    sentence = (
        f"On average {retained:.1%} of the values are kept; the others are drawn at random from those of the sub-table."
    )
    return [part("Sub-tables", sentence, ("sub-table", "records", "different values", "share kept"), rows, 1)]


# The mechanism --------------------------------------------------------------------------------------------------------


def plan_release(source: Records, params: Randomize) -> RandomizePlan:
    """Return the facts of the partition, and for the publisher alone the partition itself."""
    problem = plan.state_problem(source.counts, source.labels, params)
    solution = plan.find_partition(problem, params.algorithm, params.objective, source.history.setting)
    subtables = plan.check_partition(problem, solution)
    facts = _state_facts(problem, solution, subtables)
    return RandomizePlan.join_parts(facts, partition=_list_subtables(solution, subtables, source.labels))


def _list_subtables(
    partition_: Partition, subtables: Sequence[SubTable], labels: Sequence[str]
) -> list[PlannedSubTable]:
    groups = partition_.united or partition_.parts[:, None]
    return [
        PlannedSubTable(
            records=one.records,
            values=one.size,
            rho1=fraction_text(one.rho1),
            gamma=fraction_text(one.gamma),
            retention=float(one.retention),
            groups=[{labels[code]: int(group[code]) for code in np.flatnonzero(group).tolist()} for group in united],
        )
        for one, united in zip(subtables, groups, strict=True)
    ]


def publish_release(db: Relations, source: Records, params: Randomize, key: Key) -> RandomizeFacts:
    """Make ``perturbed`` and the tables of public parameters in database ``release``; returns the facts."""
    problem = plan.state_problem(source.counts, source.labels, params)
    solution = plan.find_partition(problem, params.algorithm, params.objective, source.history.setting)
    source.history.setting = solution.as_setting()
    subtables = plan.check_partition(problem, solution)
    gammas = [str(subtable.gamma) for subtable in subtables]
    roles = source.roles
    sub_table, code = np.nonzero(solution.parts)
    sizes = (solution.parts > 0).sum(axis=1)
    place = np.arange(len(sub_table)) - (np.cumsum(sizes) - sizes)[sub_table]
    columns = {"cell": np.arange(len(sub_table)), "sub_table": sub_table, "code": code, "place": place}
    db.register_arrow("listed", pa.table({name: array.astype(np.int32) for name, array in columns.items()}))
    listed: Holes = {"listed": temp_table("listed"), "domain": temp_table("domain"), "sa": roles.sa_columns("d")}
    db.create_table("cells", fill("randomize/cells", listed))
    if source.order == "portable":
        write_ranked(db, source, solution.parts, subtables, key)
    else:
        noise = key.random_generator("randomize", solution.parts.tolist(), gammas, tuple(source.labels))
        write_records(db, source, solution.parts, subtables, noise)
    db.create_table("privsql_domains", fill("randomize/domains", {"cells": temp_table("cells")}), into="release")
    db.register_arrow("flags", pa.table({"code": np.arange(len(problem.counts)), "protected": problem.protected}))
    holes: Holes = {"flags": temp_table("flags"), "domain": temp_table("domain"), "sa": roles.sa_out("d")}
    holes |= roles.by_sa.alias_holes("code", "protected")
    db.create_table("privsql_values", fill("randomize/values", holes), into="release")
    db.register_arrow("given", _parameters_table(subtables))
    db.create_table("privsql_subtables", fill("randomize/subtables", {"given": temp_table("given")}), into="release")
    db.drop("listed", "cells", "flags", "given")
    return _state_facts(problem, solution, subtables)


def _parameters_table(subtables: Sequence[SubTable]) -> pa.Table:
    fractions = {"rho1": [one.rho1 for one in subtables], "gamma": [one.gamma for one in subtables]}
    columns = {
        f"{name}_{part}": [str(getattr(value, part)) for value in values]
        for name, values in fractions.items()
        for part in ("numerator", "denominator")
    }
    numbers = {"records": [one.records for one in subtables], "size": [one.size for one in subtables]}
    return pa.table({"sub_table": np.arange(len(subtables)), **numbers, **columns})


def _state_facts(problem: PartitionProblem, partition_: Partition, subtables: Sequence[SubTable]) -> RandomizeFacts:
    whole, n = plan.check_partition(problem, plan.find_partition(problem, "up")), problem.records
    return RandomizeFacts(
        subtables=len(subtables),
        groups=partition_.groups,
        bound=sum(subtable.error_bound(n, problem.delta) for subtable in subtables),
        bound_up=sum(subtable.error_bound(n, problem.delta) for subtable in whole),
        retention=average_retention(subtables),
        retention_up=average_retention(whole),
        skew=float(sum(one.skew * one.records for one in subtables) / n),
        optimal=partition_.optimal,
    )


def average_retention(subtables: Sequence[SubTable]) -> float:
    """Average probability that a value is retained, sum_j (|T_j|/n) p_j."""
    retained = sum((t.retention * t.records for t in subtables), Fraction(0))
    return float(retained / sum(t.records for t in subtables))


MEASURES = (
    AlternativeMeasure("subtables", "sub-tables", ",.0f", lowest=False),
    AlternativeMeasure("values", "values of a sub-table, mean m_j", ".1f"),
    AlternativeMeasure("gamma", "gamma_j, mean", ".2f", lowest=False),
    AlternativeMeasure("retention", "retention, mean over records", ".1%", lowest=False),
    AlternativeMeasure("bound", "error bound (equation 12)", ".4f"),
    AlternativeMeasure("error", "expected error of a frequency", ".2%"),
)


def compare_algorithms(source: Records, params: Randomize) -> Alternatives:
    """The partitions of ``up``, ``pp`` and ``pp-paper``: sub-tables, retention, bound and expected error.

    The error is the root of the mean over the values of the variance of equation 7, over n.
    """
    problem, rows = plan.state_problem(source.counts, source.labels, params), []
    by_frequency = replace(problem, declared=None)
    for name, its_problem in (("up", problem), ("pp", by_frequency), ("pp-paper", by_frequency)):
        solution = plan.find_partition(its_problem, name, params.objective)
        subtables = plan.check_partition(its_problem, solution)
        variance = float(sum(one.estimate_variance for one in subtables))
        figures: dict[str, Figure] = {
            "subtables": len(subtables),
            "values": float(np.mean([one.size for one in subtables])),
            "gamma": float(np.mean([float(one.gamma) for one in subtables])),
            "retention": average_retention(subtables),
            "bound": solution.bound,
            "error": sqrt(variance / len(problem.counts)) / problem.records,
        }
        rows.append(Alternative(name, figures))
    best = min(rows, key=lambda row: row.figures["error"] or 0.0).algorithm
    return Alternatives(MEASURES, rows, f"least expected error: {best}")


def propose_parameters(source: ProfiledSource) -> Proposal:
    """Protect every value that is not more frequent than all others together, up to three times its prior."""
    counts = source.records().counts
    n = sum(counts)
    shares = [Fraction(count, n) for count in counts]
    rho1 = max((share for share in shares if share <= Fraction(1, 3)), default=min(shares))
    rounded = Fraction(-(-rho1.numerator * 1000 // rho1.denominator), 1000)
    rho2 = min(3 * rounded, (1 + rounded) / 2)
    return Proposal({"kind": "randomize", "algorithm": "pp", "rho1": str(rounded), "rho2": str(rho2)})


class Perturbation(Mechanism[Randomize, RandomizeFacts]):
    """Perturbation: every record keeps its sensitive value with a known probability, else it shows a random one.

    ``up`` draws from all values (uniform perturbation); ``pp`` and ``pp-paper`` partition the values into sub-tables.
    """

    kind = "randomize"
    algorithms = ("pp", "up", "pp-paper")
    parameters = Randomize
    facts = RandomizeFacts
    shape = TableShape(numeric=False, most_numbers=None)
    composition = NoComposition()
    layout = TABLES
    scene = PerturbedView
    advice = (
        "a lower rho2, which keeps less of every value",
        "algorithm = 'up': sub-tables with few values leave few to choose among",
        "fewer or coarser quasi-identifiers, such as age in bands, or regions for places",
    )

    def propose(self, db: Relations, source: ProfiledSource) -> Proposal:
        """Propose rho1 and rho2 that protect every value which is not more frequent than all others together."""
        return propose_parameters(source)

    def plan(self, db: Relations, source: Records, params: Randomize) -> RandomizePlan:
        """Return the partition of the values into sub-tables, with its error bound and retention."""
        return plan_release(source, params)

    def compare_algorithms(self, db: Relations, source: Records, params: Randomize) -> Alternatives:
        """Return sub-tables, retention, bound and expected error of ``up``, ``pp`` and ``pp-paper``."""
        return compare_algorithms(source, params)

    def predict_curve(self, db: Relations, source: Records, params: Randomize) -> Curve:
        """Raise ``UsageError``: there is no threshold of beliefs."""
        raise UsageError(NO_CURVE)

    def publish(self, db: Relations, source: Records, params: Randomize, key: Key) -> RandomizeFacts:
        """Perturb the records of each sub-table, and publish them with the public parameters."""
        return publish_release(db, source, params, key)

    def require_columns(self, manifest: Manifest, params: Randomize) -> None:
        """Accept the columns: values of any type can be perturbed."""

    def views(self, manifest: Manifest) -> Views:
        """Return the view of every record beside the values that it may have, with weights that undo perturbation."""
        return {WEIGHTED: release_view(manifest)}

    def functions(self, manifest: Manifest) -> IntervalFunctions:
        """Return the functions that count rows of the weighted view with intervals."""
        return release_functions(manifest)

    def checks(self, release: CheckedRelease[Randomize, RandomizeFacts]) -> list[Check]:
        """Return the checks of sub-tables, retention probabilities, bounds and facts."""
        return checks.release_checks(release)

    def long_checks(self, release: CheckedRelease[Randomize, RandomizeFacts]) -> list[Check]:
        """Return no further checks: all of them are quick."""
        return []

    def source_checks(
        self, release: CheckedRelease[Randomize, RandomizeFacts], source: Records, params: Randomize
    ) -> list[Check]:
        """Return the checks that quasi-identifiers, values and their sub-tables are those of the source."""
        return checks.source_checks(release, source, params)

    def measured(self, release: CheckedRelease[Randomize, RandomizeFacts]) -> Facts:
        """Return no facts: ``checks`` compares all that the tables tell."""
        return Facts()

    def bounds(self, release: CheckedRelease[Randomize, RandomizeFacts]) -> list[VerifiedBound]:
        """Return for each protected value rho2, and the posterior that its sub-tables allow."""
        return checks.posterior_bounds(release)

    def answers(self, db: Relations, manifest: Manifest) -> RandomizeAnswers:
        """Return the release as one that reconstructs counts from perturbed values."""
        return RandomizeAnswers(db, manifest)

    def evaluate(self, context: EvaluationContext) -> Evaluated:
        """Return errors of a workload of questions, and the quality of the channel."""
        return by_questions(context)

    def adversaries(self) -> tuple[Adversary[PerturbedView], ...]:
        """Return attackers who read the published values, and attackers who learn from the release as a whole."""
        return (
            adversaries.LINKAGE_ADVERSARY,
            adversaries.ORDER_ADVERSARY,
            adversaries.IDENTIFIERS_ADVERSARY,
            adversaries.ABSENCE_ADVERSARY,
            adversaries.NEGATIVE_ADVERSARY,
            suite.LEARNING_ADVERSARY,
            adversaries.DETERMINATION_ADVERSARY,
        )

    def joint_attacks(self) -> tuple[JointAttack, ...]:
        """Return no attack: none is known here that combines two perturbed releases."""
        return ()

    def measure_learning(self, view: ReleaseView) -> Finding | None:
        """Return None: no model says how often a learning attacker is right about perturbed values."""
        return None

    def estimate_risk(self, view: ReleaseView) -> LearningRisk | None:
        """Return the share of records for which one round of learning exceeds rho2."""
        return suite.quick_learning_risk(PerturbedView(view), self.advice)

    def promise(self, params: Randomize) -> str:
        """Return rho2, and the frequency up to which a value has it."""
        return f"<= {params.rho2} if f <= {params.rho1}"

    def words(self, params: Randomize) -> ReleasePromises:
        """Return restricted (rho1, rho2)-privacy, in sentences."""
        return explain_guarantee(params)

    def structure(self, db: Relations, manifest: Manifest) -> list[Structure]:
        """Return the sub-tables: records, values, and the share of values that are kept."""
        return describe_structure(db)
