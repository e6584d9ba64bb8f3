"""Foresee a release from its plan: facts, beliefs, what gets through, and how much a model of it would know."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import ValidationError
from sqlglot import exp

from privsql.answers.accuracy import LEAST_SHARE
from privsql.answers.bucket_model import calibrate_power, find_obstacle, list_weights, prepare_release, raise_power
from privsql.answers.channel import LARGE, Channel, Floats, own_share
from privsql.answers.learned_prior import code_column
from privsql.answers.softmax import FeatureMap, LabelLikelihood, Schedule, combine_rows, fit_softmax, start_fit
from privsql.engine.files import label_value
from privsql.engine.remote import BATCH
from privsql.engine.sqlfiles import Roles, fill, temp_table
from privsql.errors import InfeasibleError, UsageError
from privsql.exact import Linear
from privsql.keyed_random import seed_key
from privsql.mechanisms.bucketize import beliefs
from privsql.mechanisms.bucketize.attacks import LEARNING_SAMPLE
from privsql.mechanisms.bucketize.estimator import channel_facts, make_channel
from privsql.mechanisms.bucketize.fakes import plan_lists
from privsql.mechanisms.bucketize.informative import make_layout
from privsql.mechanisms.bucketize.parameters import BucketFacts, Bucketize, BucketizePlan
from privsql.mechanisms.bucketize.publish import plan_facts, reserve_memory
from privsql.mechanisms.bucketize.search import PlannedAssignment, find_plan, imply_beliefs, search
from privsql.mechanisms.contract import Alternative, AlternativeMeasure, Curve, Figure
from privsql.model.records import Records, ReleaseArrays

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from privsql.engine.database import Relations
    from privsql.mechanisms.bucketize.layout import BucketRuns
    from privsql.mechanisms.bucketize.model import BucketProblem, Ints, Plan

# Plans ----------------------------------------------------------------------------------------------------------------
# Loss and beliefs follow from counts, what gets through from a trial layout.

MOST = 1_000_000  # records of which a plan draws a layout bucket by bucket


@dataclass(frozen=True)
class Effort:
    """How much is drawn and fitted to foresee a release: ``plan`` spends the whole, and ``init`` less, thrice.

    ``coarser``: by how much fewer the blocks of a trial layout are; of ``dealt`` records at most beliefs are measured,
    by a model of labels, first of ``labels`` at most, that climbs by ``schedule``. ``proving``: a search also bounds
    the loss of all settings.
    """

    coarser: int
    dealt: int
    labels: int
    schedule: Schedule
    proving: bool


WHOLE = Effort(1, 6_000, 4_000, Schedule(15, 4, 8, 20), proving=True)
LITTLE = Effort(8, 3_000, 2_000, Schedule(8, 3, 5, 8), proving=False)


class ReleasePreview(NamedTuple):
    """Facts of a plan, the problem that it solves, and where a trial layout is drawn its lists and its channel."""

    facts: BucketizePlan
    problem: BucketProblem
    runs: BucketRuns | None
    channel: Channel | None


def make_plan_facts(db: Relations, source: Records, params: Bucketize) -> BucketizePlan:
    """Return the facts of the plan, with the seconds of a processor that the search took; raises as ``search``."""
    preview = preview_release(db, source, params, stored=source.history.setting)
    predicted = (
        predict_release(source, preview, lambda: ModelPredictor(LabelledRecords.read(db, source)))
        if db.keeps_order
        else None
    )
    figures = {} if predicted is None else {"learning_belief": predicted.belief, "count_error": predicted.error}
    remarks = _list_remarks(preview.facts, preview.problem, params)
    return BucketizePlan.join_parts(preview.facts, remarks=remarks, **figures)


def preview_release(
    db: Relations,
    source: Records,
    params: Bucketize,
    effort: Effort = WHOLE,
    stored: Mapping[str, object] | None = None,
) -> ReleasePreview:
    """Return what counts and a trial layout tell; ``stored`` and errors as of ``search``."""
    plan, problem = search(db, source, params, stored, proving=effort.proving)
    even = params.effective_layout in ("blocks", "round-robin")
    assignment = PlannedAssignment(plan, problem, even=even, fakes=bool(params.fake_values))
    facts = plan_facts(plan, problem, params, sum(source.counts))
    implied = imply_beliefs(assignment, _column_texts(db, source.roles))
    runs = _draw_runs(plan, problem, params, effort)
    if runs is not None:
        reserve_memory(db, runs)
    channel = _preview_channel(runs, facts)
    through = [channel_facts(channel)] if channel is not None else []
    planned = BucketizePlan.join_parts(facts, *through, implied, search_seconds=round(plan.seconds, 6))
    planned = BucketizePlan.join_parts(planned, not_allowed=_not_allowed(planned, problem, params))
    return ReleasePreview(planned, problem, runs, channel)


def try_preview(
    db: Relations,
    source: Records,
    keywords: dict[str, Any],
    effort: Effort = WHOLE,
    previews: list[tuple[Bucketize, ReleasePreview]] | None = None,
) -> ReleasePreview | str:
    """Return what counts and a trial layout tell of parameters, or why nothing would be published by them.

    ``previews``: those with the same effort, of which none is made twice.
    """
    previews = [] if previews is None else previews
    try:
        params = Bucketize.model_validate(keywords)
        known = next((one for stated, one in previews if stated == params), None)
        preview = known or preview_release(db, source, params, effort)
        previews.append((params, preview))
    except ValidationError as error:
        return str(error.errors()[0]["msg"]).removeprefix("Value error, ")
    except (InfeasibleError, UsageError) as error:
        return str(error)
    certain = ", ".join(preview.facts.not_allowed)
    return f"makes values certain: {certain}" if certain else preview


def _draw_runs(plan: Plan, problem: BucketProblem, params: Bucketize, effort: Effort = WHOLE) -> BucketRuns | None:
    """Return what buckets list by a layout of this plan, drawn for that; None where drawing one takes long."""
    if problem.records > MOST and (params.effective_layout == "largest-first" or len(problem.trees) > 1):
        return None
    laid = plan_lists(plan, problem.counts, params.fake_values) if params.fake_values else plan
    noise = seed_key(1).random_generator("plan")
    return make_layout(laid, params.effective_layout, noise, problem.trees, effort.coarser).list_runs(laid.setting)


def _preview_channel(runs: BucketRuns | None, facts: BucketFacts) -> Channel | None:
    """Return the channel of such a layout; None where there is none, or values are very many."""
    if runs is None or runs.values > LARGE:
        return None
    return make_channel(runs.count_meetings(facts.fake_values), facts).channel


def _list_remarks(facts: BucketizePlan, problem: BucketProblem, params: Bucketize) -> list[str]:
    """Return what to know of ``informative`` before it is published."""
    if params.algorithm != "informative":
        return []
    if len(set(problem.thresholds)) == 1:
        return ["thresholds are the same for every value: nothing is to be gained from 'informative'"]
    plainly = params.model_copy(update={"algorithm": "two-size", "layout": None})
    try:
        other = find_plan(problem, "two-size")
        stated = plan_facts(other, problem, plainly, problem.records)
        less = _preview_channel(_draw_runs(other, problem, plainly), stated)
    except InfeasibleError:
        return []
    if less is None or facts.mean_belief is None:
        return []
    return [f"beliefs are near thresholds: mean belief {facts.mean_belief:.3f}, {own_share(less):.3f} with 'two-size'"]


def _not_allowed(facts: BucketizePlan, problem: BucketProblem, params: Bucketize) -> list[str]:
    """Return the values that publishing would refuse, as they would be certain."""
    columns = facts.highest_belief.components if facts.highest_belief else {}
    excused = {problem.label(code) for code in beliefs.allowed_values(params, problem.labels, problem.thresholds)}
    names = [
        value if len(columns) == 1 else f"{name}: {value}"
        for name, of in columns.items()
        for value, most in of.items()
        if most == "1" and value not in excused
    ]
    return [] if beliefs.allows_certainty(params) else names


def _column_texts(db: Relations, roles: Roles) -> dict[str, list[str]]:
    """Of each sensitive column the text of every value, in the order of the domain."""
    labels = [exp.cast(item, "VARCHAR") for item in roles.sa_columns()]
    rows = db.rows(fill("core/domain_labels", {"domain": temp_table("domain"), "labels": labels}))
    names = enumerate(field.name for field in roles.sensitive)
    return {name: [label_value([row[k]]) for row in rows] for k, name in names}


# Models ---------------------------------------------------------------------------------------------------------------
# How much a model of the release would know, from labelled records; none is fitted to buckets.
#
# Of what a label tells of the parameters, a bucket leaves
#
#     eta_v = 1 - sum_i q_iv (1 - q_iv) / sum_i p_iv (1 - p_iv),
#
# p the probability of a value by the quasi-identifiers and q the one given the bucket's list as well. So n records in
# buckets teach as much as eta n labelled ones, to which p is quickly fitted. Other records are dealt to lists of the
# plan: q is the attacker's belief. The answer to a question varies within buckets by sum q (1 - q), and with what
# parameters add, where questions do not share them, by the sum of that over eta. So of a true count of N records
# with value v, among t of all records, the mean relative error is
#
#     sqrt(2/pi) sqrt((1 - t) rho_v / (eta_v N)),   rho_v = sum_i q_iv (1 - q_iv) / sum_i q_iv,
#
# here its mean over questions like those of ``evaluate``: equality on one to three columns, and any value.

READ = 40_000  # records that are read, at most
FIRST_SHARE = 0.4  # of the labels by which eta is found
HELD_OUT = 0.1  # of the records by an attacker
LOW, HIGH = 200, 1_000  # of the counts
CONDITIONS = 400
STEADY = 200  # records of all values by which eta of one is steadied: few are dealt of each, and errors go by 1/eta


@dataclass(frozen=True)
class PredictedModel:
    """``belief``: of the learning attacker in its best guess, on average; ``error``: mean relative error of counts of
    ``LOW`` to ``HIGH`` by the model of ``privsql fit``, None where no value has so many records.
    """

    belief: float
    error: float | None


@dataclass(frozen=True)
class LabelledRecords:
    """Every k-th record of a source: ``columns`` (r,) each, the ``labels`` (r,) are codes; ``counts`` (m,) of all."""

    columns: dict[str, NDArray[Any]]
    labels: Ints
    counts: Ints

    @staticmethod
    def read(db: Relations, source: Records) -> LabelledRecords:
        """Read at most ``READ`` records, spread evenly."""
        counts = np.array(source.counts, dtype=np.int64)
        step, number = -(-int(counts.sum()) // READ), 0
        parts = []
        with db.stream_batches(source.coded_records(ordered=False), BATCH) as coded:
            for batch in coded:
                parts.append(pa.table(batch).take(np.arange(-number % step, len(batch), step)))
                number += len(batch)
        rows, roles = pa.concat_tables(parts).combine_chunks(), source.roles
        fields = zip(roles.quasi_identifiers, roles.qi_keys, strict=True)
        columns = {field.name: code_column(rows[key], field) for field, key in fields}
        return LabelledRecords(columns, rows["code"].to_numpy().astype(np.int64), counts)

    def select_records(self, chosen: NDArray[np.intp]) -> LabelledRecords:
        """Return some of the records."""
        columns = {name: column[chosen] for name, column in self.columns.items()}
        return LabelledRecords(columns, self.labels[chosen], self.counts)


def predict_release(
    source: Records, preview: ReleasePreview, read: Callable[[], ModelPredictor]
) -> PredictedModel | None:
    """Return what a model would know of a planned release; None where no model is fitted, or no layout is drawn."""
    facts, roles = preview.facts, source.roles
    if facts.fake_values or len(roles.sensitive) > 1 or not roles.quasi_identifiers:
        return None
    if preview.runs is None or find_obstacle(preview.problem.records, len(source.counts)):
        return None
    predicted = read().predict(preview.runs)
    return replace(predicted, error=None) if preview.problem.bounds else predicted  # an attacker fits one all the same


@dataclass(frozen=True)
class ModelPredictor:
    """Predict models of several releases of the same records: labels, the first fit and questions are shared."""

    labelled: LabelledRecords
    effort: Effort = WHOLE

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Return the records in random order, those of the first fit first."""
        return seed_key(1).random_generator("prediction").permutation(len(self.labelled.labels))

    @property
    def attacked(self) -> float:
        """Return the number of records to which an attacker fits a model."""
        return min(int(self.labelled.counts.sum()), LEARNING_SAMPLE) * (1 - HELD_OUT)

    @cached_property
    def first_fit(self) -> LabelFit:
        """Return the fit to the first labels, which finds eta."""
        number = min(int(FIRST_SHARE * self.attacked), self.effort.labels, len(self.order) // 3)
        return self._fit_labels(self.order[: max(1, number)])

    @cached_property
    def questions(self) -> tuple[Floats, Floats]:
        """Return the questions of which the error is predicted, as ``predict_error`` takes them."""
        return _draw_questions(self.labelled, seed_key(1).random_generator("questions"))

    def predict(self, runs: BucketRuns) -> PredictedModel:
        """Return what a model would know of records in buckets with the lists of ``runs``, by labels and no fit."""
        records, first = len(self.order), self.first_fit
        bucket, slots = _choose_lists(runs, min(self.effort.dealt, records // 3))
        rest = self.order[first.records :]
        dealt = rest[_choose_records(self.labelled.labels[rest], slots, seed_key(1).random_generator("dealt"))]
        lists = self.labelled.select_records(dealt), bucket, slots
        left = self.order[~np.isin(self.order, dealt)]
        taught = left[: max(1, int(measure_posterior(first, *lists).share * self.attacked))]
        found = measure_posterior(self._fit_labels(taught), *lists)
        return PredictedModel(found.belief, found.predict_error(*self.questions))

    def _fit_labels(self, chosen: NDArray[np.intp]) -> LabelFit:
        return LabelFit.from_records(self.labelled.select_records(chosen), self.effort.schedule)


def _draw_questions(labelled: LabelledRecords, noise: np.random.Generator) -> tuple[Floats, Floats]:
    """Return of conditions the share of the records that meet them (q,), and how many have each value (q, K)."""
    records, values, found = len(labelled.labels), len(labelled.counts), []
    columns = [np.unique(column, return_inverse=True)[1] for column in labelled.columns.values()]
    for row in noise.integers(records, size=CONDITIONS).tolist():
        number = int(noise.integers(1, min(3, len(columns)) + 1))
        chosen = [columns[at] for at in noise.choice(len(columns), number, replace=False)]
        members = np.logical_and.reduce([column == column[row] for column in chosen])
        if members.mean() > LEAST_SHARE:
            found.append(np.bincount(labelled.labels[members], minlength=values))
    counts = np.array(found, dtype=np.float64).reshape(-1, values)
    return counts.sum(axis=1) / records, counts * (labelled.counts.sum() / records)


def _choose_lists(runs: BucketRuns, records: int) -> tuple[Ints, Ints]:
    """Return the buckets and values of about so many slots (s,), spread evenly over the buckets of each size."""
    share = records / int(runs.listed_counts.sum())
    parts: list[tuple[Ints, Ints]] = []
    number = 0
    for one in runs.classes:
        ends = np.cumsum(one.length)
        buckets = max(1, min(int(ends[-1]), round(share * int(ends[-1]))))
        chosen = ((np.arange(buckets) + 0.5) * ends[-1] / buckets).astype(np.int64)
        codes = one.codes[np.searchsorted(ends, chosen, side="right")].astype(np.int64)
        parts.append((number + np.repeat(np.arange(buckets), codes.shape[1]), codes.ravel()))
        number += buckets
    bucket, slots = (np.concatenate(part) for part in zip(*parts, strict=True))
    return bucket, slots


def _choose_records(labels: Ints, slots: Ints, noise: np.random.Generator) -> NDArray[np.intp]:
    """Return a record with the value of each slot (s,); where these are too few, some of them again."""
    shuffled = noise.permutation(len(labels))
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    order = np.argsort(slots, kind="stable")
    first = np.searchsorted(labels[by_label], slots[order])
    have = np.maximum(np.searchsorted(labels[by_label], slots[order], side="right") - first, 1)
    rank = np.arange(len(slots)) - np.searchsorted(slots[order], slots[order])
    chosen = np.empty(len(slots), dtype=np.intp)
    chosen[order] = by_label[np.minimum(first + rank % have, len(labels) - 1)]
    return chosen


@dataclass(frozen=True)
class PosteriorSums:
    """``belief``: mean belief in the best guess; sums over records by value (K,): ``weights`` of q, ``open`` of
    q (1 - q), and ``prior`` of p (1 - p).
    """

    belief: float
    weights: Floats
    open: Floats
    prior: Floats

    @property
    def share(self) -> float:
        """Return eta of all values."""
        return float(np.clip(1 - self.open.sum() / self.prior.sum(), 0, 1))

    def predict_error(self, shares: Floats, counts: Floats) -> float | None:
        """Return the mean relative error of ``counts`` (q, K) from ``LOW`` to ``HIGH``, of ``shares`` (q,) of all."""
        added = STEADY * self.prior.sum() / max(float(self.weights.sum()), 1)  # as of so many records of all values
        share = 1 - (self.open + added * (1 - self.share)) / (self.prior + added)
        known = (self.weights > 0) & (share > 0)
        question, value = np.nonzero((counts >= LOW) & (counts < HIGH) & known)
        if not len(value):
            return None
        open_, learnt = self.open[value], self.weights[value] * share[value]
        variance = (1 - shares[question]) * open_ / (learnt * counts[question, value])
        return float(np.sqrt(2 / np.pi * variance).mean())


@dataclass(frozen=True)
class LabelFit:
    """A model that is fitted to the labels of some ``records``; ``offset`` (K,): log-odds of the values' shares."""

    records: int
    features: FeatureMap
    theta: Floats
    offset: Floats

    @staticmethod
    def from_records(taught: LabelledRecords, schedule: Schedule) -> LabelFit:
        """Fit the model."""
        values, offset = len(taught.counts), np.log(np.maximum(taught.counts, 1) / taught.counts.sum())
        first, member, sizes = combine_rows(list(taught.columns.values()))
        columns = {name: column[first] for name, column in taught.columns.items()}
        features = FeatureMap(columns, sizes)
        design, labels = features.make_design(columns, sizes), np.zeros((len(first), values))
        np.add.at(labels, (member, taught.labels), 1)
        theta = fit_softmax(design, LabelLikelihood(labels), offset, start_fit(design, values), schedule).theta
        return LabelFit(len(taught.labels), features, theta, offset)


def measure_posterior(fit: LabelFit, dealt: LabelledRecords, bucket: Ints, slots: Ints) -> PosteriorSums:
    """Return what is believed of ``dealt`` records in buckets (s,) that list their values, after labels of others."""
    values = len(dealt.counts)
    entries, count = np.unique(bucket * values + slots, return_counts=True)
    arrays = ReleaseArrays(dealt.columns, bucket, entries // values, entries % values, count, [None] * values)
    prepared = prepare_release(arrays, fit.features)
    likelihood = prepared.likelihood
    probabilities = prepared.design.probabilities(fit.theta, fit.offset)
    belief, power = calibrate_power(likelihood, probabilities)
    probabilities = raise_power(probabilities, power)
    _, value, weight = list_weights(likelihood, probabilities)
    prior = probabilities[likelihood.member]

    def sum_values(amounts: Floats) -> Floats:
        return np.asarray(np.bincount(value, amounts, values), dtype=np.float64)

    left = prior * (1 - prior)
    return PosteriorSums(belief, sum_values(weight), sum_values(weight * (1 - weight)), left.sum(axis=0))


# Other thresholds -----------------------------------------------------------------------------------------------------

FACTORS = tuple(map(Fraction, ("1/2", "3/4", "1", "3/2", "2", "3")))
NEAREST = tuple(map(Fraction, ("1/2", "1", "3/2", "2")))  # of which ``init`` tells the first three that can be met
CURVE = (
    AlternativeMeasure("highest_belief", "highest belief of an attacker who looks a person up (promised)", ".1%"),
    AlternativeMeasure("learning_belief", "belief of the learning attacker (not promised)", ".1%"),
    AlternativeMeasure("count_error", f"error of a count of {LOW} to {HIGH:,} records", ".1%"),
)


def predict_curve(db: Relations, source: Records, params: Bucketize) -> Curve:
    """Return the multiples of the stated threshold by ``FACTORS``; ``UsageError`` if a query or buckets state it."""
    rows = list(predict_thresholds(db, source, params, FACTORS))
    return Curve(CURVE, rows, "thresholds are multiples of the stated one; errors are those after 'privsql fit'")


def predict_thresholds(
    db: Relations,
    source: Records,
    params: Bucketize,
    factors: Sequence[Fraction],
    effort: Effort = WHOLE,
    previews: list[tuple[Bucketize, ReleasePreview]] | None = None,
) -> Iterator[Alternative]:
    """Yield the multiples of the stated threshold by ``factors``; ``UsageError`` if a query or buckets state it.

    ``previews``: as of ``try_preview``.
    """
    rule, read = params.threshold.default, cache(lambda: ModelPredictor(LabelledRecords.read(db, source), effort))
    if rule is None or params.setting is not None:
        raise UsageError("curve: give one threshold, such as '8*f + 0.02', in place of a query or a setting")
    stated = params.model_dump(mode="json", exclude_none=True)
    for factor in factors:
        scaled = Linear(rule.slope * factor, rule.intercept * factor)
        if not scaled.slope and scaled.intercept >= 1:
            continue
        threshold = {**stated["threshold"], "default": str(scaled)}
        preview = try_preview(db, source, stated | {"threshold": threshold}, effort, previews)
        if isinstance(preview, str):
            yield Alternative(str(scaled), {}, preview)
            continue
        figures: dict[str, Figure] = {"highest_belief": preview.facts.peak}
        predicted = predict_release(source, preview, read) if db.keeps_order else None
        if predicted is not None:
            figures |= {"learning_belief": predicted.belief, "count_error": predicted.error}
        yield Alternative(str(scaled), figures)
