"""Bucketization as a ``Mechanism``: plans, previews, proposals, answers and explanations."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property, partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql.answers import answer, estimate
from privsql.answers.accuracy import by_questions
from privsql.answers.answer import BASELINE, LINEAR, MODEL
from privsql.answers.bucket_model import find_obstacle, find_twins
from privsql.answers.channel import LARGE, Channel, LinearEstimator, relative_error, remaining_variance
from privsql.answers.question import EXACT, CountQuery, Explained, exact_answer, exact_statement
from privsql.attacks import adversaries
from privsql.attacks.suite import AttackContext, Suite
from privsql.engine.files import label_value
from privsql.engine.sqlfiles import alias_as, all_rows, column, fill, table
from privsql.errors import InfeasibleError, UsageError
from privsql.exact import fraction_text, parse_linear
from privsql.mechanisms.bucketize import attacks, beliefs
from privsql.mechanisms.bucketize.attacks import BucketAttackView
from privsql.mechanisms.bucketize.beliefs import TABLES, make_views
from privsql.mechanisms.bucketize.checks import SQL, long_checks, make_checks, promise_group_bounds, source_checks
from privsql.mechanisms.bucketize.estimator import (
    BASELINE_FORMULA,
    LINEAR_FORMULA,
    MODEL_FORMULA,
    baseline_statement,
    channel_facts,
    channel_statement,
    estimate_baseline,
    estimate_by_model,
    expected_records,
    make_channel,
    make_fake_value_channel,
    make_linear_estimator,
    model_statement,
    observe_sets,
    read_channel_pairs,
    read_lists,
    read_release_arrays,
)
from privsql.mechanisms.bucketize.parameters import BeliefFacts, Bucketize, BucketizeFacts
from privsql.mechanisms.bucketize.preview import (
    LITTLE,
    NEAREST,
    ReleasePreview,
    make_plan_facts,
    predict_curve,
    predict_thresholds,
    try_preview,
)
from privsql.mechanisms.bucketize.publish import publish
from privsql.mechanisms.bucketize.search import ALGORITHMS, search
from privsql.mechanisms.contract import (
    Alternative,
    AlternativeMeasure,
    Alternatives,
    Proposal,
    TableShape,
    TabularMechanism,
)
from privsql.model.manifest import (
    LEARNT,
    SEVERAL,
    CheckedRelease,
    Estimate,
    Manifest,
    ReleasePromises,
    Structure,
    VerifiedBound,
)
from privsql.model.manifest import make_structure as part

if TYPE_CHECKING:
    import pyarrow as pa

    from privsql.engine.database import Relations
    from privsql.mechanisms.bucketize.estimator import BucketLists, FakeValueChannel, ListedPairs
    from privsql.mechanisms.contract import Figure, ProfiledSource
    from privsql.model.records import Records, ReleaseArrays

# Answers --------------------------------------------------------------------------------------------------------------


MOST_LISTED = 2**25  # records of a release that stores in memory what its buckets list


class BucketizedAnswers(answer.Answers):
    """An open release that answers count queries; its channel is read once."""

    certain = frozenset({BASELINE})
    records = "qit"
    measures = frozenset()
    modelled = True

    @cached_property
    def channel(self) -> Channel:
        return self._fake_value_channel.channel

    @cached_property
    def _value_count(self) -> int:
        """Return how many values are listed; the channel of very many takes seconds to read."""
        return int(self._db.rows(fill("core/size", {"table": table("privsql_values")}))[0][0])

    @cached_property
    def _facts(self) -> BucketizeFacts:
        return BucketizeFacts.model_validate(self._manifest.facts)

    @cached_property
    def _listed_pairs(self) -> list[ListedPairs]:
        return read_channel_pairs(self._db.arrow(all_rows(table("privsql_channel"))), self._facts)

    @cached_property
    def _fake_value_channel(self) -> FakeValueChannel:
        return make_fake_value_channel(self._listed_pairs, self._facts.real)

    @cached_property
    def _bucket_lists(self) -> BucketLists | None:
        """Return the lists of the buckets, by which groups are summed; None where they are too long to be stored."""
        if self._manifest.published_records > MOST_LISTED:
            return None
        return read_lists(self._db, self._roles, self._facts)

    @cached_property
    def _expected_records(self) -> pa.Table:
        return expected_records(self._db, self._roles, self._facts, self._fake_value_channel)

    @cached_property
    def _linear_estimator(self) -> LinearEstimator | None:
        """The estimator of plain SQL, of releases that weigh by shares too; None where values are very many."""
        if self._value_count > LARGE:
            return None
        return make_linear_estimator(self._listed_pairs, self._facts.real)

    @property
    def estimators(self) -> tuple[str, ...]:
        model = (MODEL,) if self.model is not None else ()
        linear = (LINEAR,) if self._value_count <= LARGE else ()
        return *model, *linear, BASELINE

    def make_statement(self, query: CountQuery, estimator: str) -> Explained:
        if query.is_exact:
            return exact_statement(query, table("qit")), EXACT
        if estimator == MODEL and self.model is not None:
            return model_statement(query, self._roles, self.model), MODEL_FORMULA
        if estimator == LINEAR:
            return partial(channel_statement, query, self._roles, self._facts), LINEAR_FORMULA  # answers read lists
        if query.measure.kind != "count":
            raise UsageError(f"{query.measure.kind.upper()} needs another estimator: {', '.join(self.estimators[:-1])}")
        return baseline_statement(query, self._roles, self._facts), BASELINE_FORMULA

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        if query.is_exact:
            return exact_answer(self._db, query, table("qit"))
        if estimator == MODEL and self.model is not None:
            bounds = self._bound_counts(query)
            return estimate_by_model(self._db, query, self._roles, self.model, bounds, confidence)
        if estimator != LINEAR or self._linear_estimator is None:
            return self._bound_counts(query)
        law, code = self._fake_value_channel, self._roles.by_sa.column_name("code")
        question = estimate.ReleaseQuestion(
            self._db, query, table("qit"), law.channel, most=law.most, linear=self._linear_estimator, code=code
        )
        observed = observe_sets(question, self._roles, self._facts, law, self._bucket_lists)
        return estimate.estimate_rows(question, observed, confidence)

    def read_arrays(self, database: str) -> ReleaseArrays:
        """Return what a model is fitted to; ``InfeasibleError`` where none is."""
        obstacle, arrays = self._find_obstacle(), None
        if obstacle is None:
            arrays = read_release_arrays(self._db, self._roles, database)
            obstacle = find_obstacle(len(arrays.bucket), len(arrays.values)) or find_twins(arrays)
        if obstacle or arrays is None:
            raise InfeasibleError(f"no model is fitted to {obstacle}; its answers are linear")
        return arrays

    def explain_improvement(self, estimator: str) -> tuple[str, ...]:
        """Return that a model would halve the error, and what it takes."""
        if estimator != LINEAR or self.model is not None or self._why_unmodelled:
            return ()
        return ("'privsql fit' makes answers of this release about twice as precise",)

    @property
    def _why_unmodelled(self) -> str | None:
        """Return what stands against a model of the open release."""
        return self._find_obstacle() or find_obstacle(self._manifest.published_records, self._value_count)

    def _find_obstacle(self) -> str | None:
        """Return what its manifest states against a model."""
        if self._facts.fake_values:
            return "a release with fake values"
        if len(self._roles.sensitive) > 1:
            return "a compound attribute"
        return "a release with groups of values" if self._manifest.parameters.get("groups") else None

    def _bound_counts(self, query: CountQuery) -> list[Estimate]:
        """Return counts by the papers' formula with the bounds that are certain."""
        if self._facts.fake_values:
            self._db.register_arrow("expected", self._expected_records)
        return estimate_baseline(self._db, query, self._roles, self._facts)


# Alternatives ---------------------------------------------------------------------------------------------------------

QUESTIONS = [(f"error_{count}_at_{share}", count, share) for share, count in product((0.01, 0.05), (100, 500, 2000))]
MEASURES = (
    AlternativeMeasure("loss", "loss", ",.0f"),
    AlternativeMeasure("information", "information used, tr M / sum f'", ".2f", lowest=False),
    AlternativeMeasure("second", "channel, second singular value", ".3f", lowest=False),
    AlternativeMeasure("median", "channel, median", ".3f", lowest=False),
    AlternativeMeasure("smallest", "channel, smallest", ".3f", lowest=False),
    AlternativeMeasure("highest_belief", "highest belief, at most"),
    AlternativeMeasure("mean_belief", "mean belief"),
    *(
        AlternativeMeasure(key, f"error of a count of {count:,} in {share:.0%}", ".1%")
        for key, count, share in QUESTIONS
    ),
)


def compare_algorithms(db: Relations, source: Records, params: Bucketize) -> Alternatives:
    """All of them for the specification ``params``, whose layout and search hold for its own algorithm alone.

    ``tr M / sum f'``: how much of the beliefs that thresholds allow is used (``planning.informative``); errors are what
    ``relative_error`` expects of a question that selects a share of the records.
    """
    names = (*ALGORITHMS, *(["setting"] if params.setting is not None else []))
    rows = [_preview_alternative(db, source, params, name) for name in names]
    return Alternatives(MEASURES, rows, _advise_algorithm(rows, params.algorithm))


def _preview_alternative(db: Relations, source: Records, params: Bucketize, name: str) -> Alternative:
    keywords: dict[str, Any] = params.model_dump(mode="json", exclude_none=True) | {"algorithm": name}
    if name != params.algorithm:
        keywords = {key: value for key, value in keywords.items() if key not in ("layout", "setting")}
    preview = try_preview(db, source, keywords)
    if isinstance(preview, str):
        return Alternative(name, {}, preview)
    facts, problem, _, channel = preview
    figures: dict[str, Figure] = {"loss": facts.loss, "highest_belief": facts.peak}
    if channel is not None:
        allowed = float(sum(problem.thresholds))
        figures |= {"mean_belief": facts.mean_belief, "information": float(np.trace(channel.mean)) / allowed}
        if facts.channel is not None:
            figures |= facts.channel.as_json()
            figures |= {key: relative_error(channel, share, count) for key, count, share in QUESTIONS}
    return Alternative(name, figures)


def _advise_algorithm(rows: list[Alternative], chosen: str) -> str:
    """The algorithm with the least error, the geometric mean of what is foreseen, beside what is asked for."""
    errors = {row.algorithm: error for row in rows if (error := _mean_error(row.figures)) is not None}
    if not errors:
        return "errors are not predicted here"
    best = min(errors, key=lambda name: errors[name])
    if chosen not in errors or best == chosen:
        return f"least error: {best}" + (", as specified" if best == chosen else "")
    beliefs = {row.algorithm: row.figures["mean_belief"] for row in rows if row.algorithm in (best, chosen)}
    return (
        f"least error: {best}, {errors[best] / errors[chosen]:.2f} times that of {chosen}; "
        f"mean belief is {beliefs[best]:.3f} with it and {beliefs[chosen]:.3f} with {chosen}"
    )


def _mean_error(figures: dict[str, Figure]) -> float | None:
    """Which of them are foreseen depends on the values' frequencies alone, so they are the same of all algorithms."""
    known = [error for key, *_ in QUESTIONS if (error := figures.get(key))]
    return float(np.exp(np.mean(np.log(known)))) if known else None


# Proposal -------------------------------------------------------------------------------------------------------------
# What ``init`` proposes for a table: the first rule that can be met and lets no belief reach above 1/2.
#
# The algorithm is the default of ``publish``. A remark says what it leaves open of a count, and what beliefs are,
# beside the one with the least loss.

CLEARLY, SHOWN = 0.9, 3
RULES = (  # proposed, the first that can be met; what varies with f comes first, then what leaves less room
    "2*f + 0.02", "4*f + 0.02", "8*f + 0.02", "16*f + 0.02", "32*f + 0.02", "1.5*f + 0.05", "f + 0.1",
    "f + 0.05", "f + 0.02",
)  # fmt: skip


def propose_parameters(db: Relations, source: ProfiledSource) -> Proposal:
    """The first rule of ``RULES`` that two sizes can meet and that bounds every belief by 1/2.

    Where there is none, the rule that bounds the highest belief lowest, with a remark that says which value it is.
    """
    records = source.records()
    share = Fraction(max(records.counts), sum(records.counts)) if records.counts else Fraction(0)
    bounds = {rule: parse_linear(rule).threshold_at(share) for rule in RULES}
    modest = [rule for rule in RULES if bounds[rule] <= Fraction(1, 2)]
    by_bound = sorted(set(RULES) - set(modest), key=lambda rule: (bounds[rule], RULES.index(rule)))
    chosen = next((rule for rule in (*modest, *by_bound) if _can_be_met(db, records, rule)), None)
    if chosen is None:
        raise InfeasibleError("no threshold below certainty can be met; there are too few values or records")
    previews: list[tuple[Bucketize, ReleasePreview]] = []
    known = {"allow_certain": True} if bounds[chosen] == 1 else {}
    algorithm, why = _choose_algorithm(db, records, {"threshold": chosen, **known}, previews)
    params = {"kind": "bucketize", "algorithm": algorithm, "threshold": chosen, **known}
    near = _describe_near(db, records, Bucketize.model_validate(params), previews)
    if chosen in modest:
        return Proposal(params, (*why, *near))
    worst, bound = records.labels[int(np.argmax(records.counts))], min(Fraction(1), bounds[chosen])
    remark = (
        f"Note: {worst} is the value of {float(share):.1%} of the records, so no release can bound the belief in it by "
        f"1/2; this one bounds it by {float(bound):.1%}."
    )
    return Proposal(params, (remark, *why, *near))


def _choose_algorithm(
    db: Relations, records: Records, rule: dict[str, Any], previews: list[tuple[Bucketize, ReleasePreview]]
) -> tuple[str, tuple[str, ...]]:
    """The default of ``publish``, or ``optimal`` where that can't be; and what it leaves open beside ``optimal``.

    ``previews``: as of ``try_preview``.
    """
    default = Bucketize.model_validate(rule).algorithm
    outcomes = {}
    for name in dict.fromkeys((default, "optimal")):
        preview = try_preview(db, records, {**rule, "algorithm": name}, LITTLE, previews)
        if isinstance(preview, str):
            return "optimal", ()
        if preview.channel is None:
            return default, ()
        outcomes[name] = remaining_variance(preview.channel), preview.facts.mean_belief or 0.0
    (left, belief), (less, more) = outcomes["optimal"], outcomes[default]
    if less > CLEARLY * left:
        return default, ()
    return default, (
        f"{default!r} makes counts more precise: it leaves {less:.0%} of their uncertainty, 'optimal' {left:.0%}.",
        f"Beliefs get closer to thresholds: their mean is {more:.3f}, with 'optimal' {belief:.3f}.",
        "privsql plan --algorithms compares all algorithms.",
    )


def _describe_near(
    db: Relations, records: Records, params: Bucketize, previews: list[tuple[Bucketize, ReleasePreview]]
) -> list[str]:
    """Return what three of the ``NEAREST`` multiples of a threshold are predicted to give, one line each."""
    lines: list[str] = []
    for row in predict_thresholds(db, records, params, NEAREST, LITTLE, previews):
        belief, error = row.figures.get("learning_belief"), row.figures.get("count_error")
        if belief is not None:
            errs = "" if error is None else f", a count of 200 to 1,000 records is off by about {error:.1%}"
            lines.append(f"{row.algorithm}: an attacker who learns from the release is about {belief:.0%} sure{errs}")
        if len(lines) == SHOWN:
            break
    return ["Predicted by threshold, from a few records (privsql plan --curve reads more):", *lines] if lines else []


def _can_be_met(db: Relations, records: Records, rule: str) -> bool:
    try:
        search(db, records, Bucketize.model_validate({"algorithm": "two-size", "threshold": rule}), proving=False)
    except InfeasibleError:
        return False
    return True


# Explanations ---------------------------------------------------------------------------------------------------------

METHOD = (
    "Records lie in buckets. The release shows which records and which sensitive values a bucket has, but not which "
    "record has which value: every order within the bucket is equally likely."
)
BOUND = (
    "An attacker who knows everyone in the table, everything published of them and how the release was made can "
    "believe no value of anyone with a probability above the bound of that value."
)
KNOWN = "Against people who know the sensitive values of others in the same bucket."
PRESENT = "It does not hide who is in the table."


def explain_guarantee(params: Bucketize) -> ReleasePromises:
    """F'-privacy, in sentences."""
    absent = ("The bounds are for those who are in the release; who was left out is assumed to be unknown.",)
    groups = ("Where a group of values has a bound of its own, it holds for the sum of the beliefs in them.",)
    fakes = (f"Every bucket lists {params.fake_values} values besides that nobody in it has, not marked as such.",)
    one_by_one = "For beliefs in one of several values together: they add up, but for groups with bounds of their own."
    promised = (
        METHOD,
        BOUND,
        *(groups if params.is_bounding else ()),
        *(fakes if params.fake_values else ()),
        *(absent if params.absence == "unobservable" else ()),
    )
    return ReleasePromises(promised, (KNOWN, LEARNT, SEVERAL, one_by_one, PRESENT))


def describe_structure(_: Relations, manifest: Manifest) -> list[Structure]:
    """Buckets by size, as ``make_checks`` compared them with the tables."""
    setting = sorted(BucketizeFacts.model_validate(manifest.facts).sizes)
    rows: list[tuple[Any, ...]] = [(f"{size:,} records", number, size * number) for size, number in setting]
    buckets, records = sum(number for _, number in setting), sum(size * number for size, number in setting)
    many = f"{buckets:,} buckets" if buckets != 1 else "one bucket"
    sentence = f"{records:,} records lie in {many}. The fewer records a bucket has, the better are answers."
    return [part("Buckets by size", sentence, ("size of bucket", "buckets", "records"), rows, 2)]


# Measured facts -------------------------------------------------------------------------------------------------------


def measure_release(release: CheckedRelease[Bucketize, BucketizeFacts]) -> BeliefFacts:
    """Return how far beliefs go, from ST, and what gets through."""
    facts, st, values = release.facts, release.view("st"), release.view("values")
    measured = beliefs.measure_beliefs(release.db, st, values, facts, release.roles)
    return BeliefFacts.join_parts(measured, channel_facts(make_channel(release.read_view("channel"), facts).channel))


def list_bounds(release: CheckedRelease[Bucketize, BucketizeFacts]) -> list[VerifiedBound]:
    """Return every group's bound, then every value's threshold, and the largest share of a bucket that has it."""
    keys = release.roles.sa_keys
    query = release.fill_query(
        "verify/bounds",
        st=release.view("kinds"),
        sa=release.roles.sa_columns("st"),
        labels=[alias_as(exp.cast(column(key, "v"), "VARCHAR"), key) for key in keys],
        same_value="v w",
    )
    promised: dict[int, VerifiedBound] = {}
    fakes_count = release.facts.fake_values  # records of values are not stated then
    listed = None if fakes_count else release.read_view("values")
    records = (
        {} if listed is None else dict(zip(*(listed[name].to_pylist() for name in ("code", "records")), strict=True))
    )
    most: dict[int, Fraction] = {}
    for code, *value_parts, top, bottom, size, held in release.db.rows(query):
        most[code] = max(most.get(code, Fraction(0)), min(Fraction(1), Fraction(int(held), int(size))))
        threshold = fraction_text(Fraction(int(top), int(bottom)))
        promised[code] = VerifiedBound(
            label_value(value_parts), threshold, fraction_text(most[code]), records.get(code)
        )
    return [*promise_group_bounds(release), *promised.values()]


# The mechanism --------------------------------------------------------------------------------------------------------


def _belief_in_missing(learnt: AttackContext[BucketAttackView]) -> float | None:
    """Who is left out has one of the values that are as frequent as they may be: the most frequent ones."""
    if not learnt.view.manifest.facts.get("left_out"):
        return None
    records = learnt.scene.channel.records.round().astype(np.int64)
    return 1 / int((records == records.max()).sum())


def describe_bound(params: Bucketize) -> str:
    """F'-privacy."""
    threshold = params.threshold
    exceptions = f", {len(threshold.values)} values less or more" if threshold.values else ""
    absent = ", of those who are there" if params.absence == "unobservable" else ""
    set_bounds = [f"; {name} {rule.default or 'as queried'}" for name, rule in params.components.items()]
    set_bounds += [f"; {name} {group.threshold}" for name, group in params.groups.items()]
    return f"<= {threshold.default or 'as queried'}{exceptions}{''.join(set_bounds)}{absent}"


MECHANISM = TabularMechanism(
    parameters=Bucketize,
    facts=BucketizeFacts,
    shape=TableShape(numeric=False, most_numbers=500),
    sql=SQL,
    plan=make_plan_facts,
    algorithms=compare_algorithms,
    publish=publish,
    layout=TABLES,
    views=make_views,
    checks=make_checks,
    long_checks=long_checks,
    measured=measure_release,
    bounds=list_bounds,
    source_checks=source_checks,
    answers=BucketizedAnswers,
    evaluate=by_questions,
    adversaries=Suite(
        scene=BucketAttackView,
        adversaries=(
            adversaries.LINKAGE_ADVERSARY,
            attacks.HOMOGENEITY_ADVERSARY,
            adversaries.ORDER_ADVERSARY,
            adversaries.IDENTIFIERS_ADVERSARY,
            attacks.CORRUPTION_ADVERSARY,
            adversaries.absence_adversary(_belief_in_missing),
            adversaries.NEGATIVE_ADVERSARY,
            attacks.LEARNING_ADVERSARY,
            adversaries.DETERMINATION_ADVERSARY,
        ),
        combining=(adversaries.attack_by_intersection,),
        learning=attacks.measure_learning,
    ),
    promise=describe_bound,
    words=explain_guarantee,
    structure=describe_structure,
    advice=(
        "larger buckets, by a lower threshold or a larger min_bucket_size",
        "fake values (fake_values, with a constant threshold)",
        "fewer or coarser quasi-identifiers, such as age in bands, or regions for places",
    ),
    propose=propose_parameters,
    curve=predict_curve,
)
