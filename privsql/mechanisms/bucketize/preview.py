"""Foresee releases from their plans: facts, beliefs, models, other algorithms, other thresholds."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import ValidationError

from privsql.answers.accuracy import LEAST_SHARE
from privsql.answers.bucket_model import find_obstacle, list_weights
from privsql.answers.bucket_posteriors import prepare_release
from privsql.answers.channel import LARGE, Channel, Floats, relative_error
from privsql.answers.learned_prior import code_column
from privsql.answers.softmax import (
    FeatureMap,
    LabelLikelihood,
    Schedule,
    SoftmaxFit,
    combine_rows,
    fit_softmax,
    start_fit,
)
from privsql.engine.remote import BATCH
from privsql.engine.sqlfiles import temp_table
from privsql.errors import InfeasibleError, UsageError
from privsql.exact import Linear, fraction_text
from privsql.keyed_random import seed_key
from privsql.mechanisms.base import Alternative, AlternativeMeasure, Alternatives, Curve, Figure
from privsql.mechanisms.bucketize import bounds
from privsql.mechanisms.bucketize.attacks import LEARNING_SAMPLE
from privsql.mechanisms.bucketize.estimator import channel_facts, make_channel
from privsql.mechanisms.bucketize.fakes import plan_lists
from privsql.mechanisms.bucketize.implied import PlannedAssignment, imply_beliefs
from privsql.mechanisms.bucketize.layout import make_layout
from privsql.mechanisms.bucketize.parameters import Bucketize, BucketizePlan
from privsql.mechanisms.bucketize.plan import ALGORITHMS, plan_buckets, plan_facts
from privsql.mechanisms.bucketize.publish import reserve_memory
from privsql.model.arrays import ReleaseArrays

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from privsql.answers.bucket_posteriors import Batch, BucketLikelihood
    from privsql.engine.database import Relations
    from privsql.mechanisms.bucketize.layout import BucketRuns
    from privsql.mechanisms.bucketize.model import BucketProblem, Ints, Plan
    from privsql.model.records import Records

# Plans ----------------------------------------------------------------------------------------------------------------
# Loss and beliefs follow from counts, what gets through from a trial layout.

MOST = 1_000_000  # records of which a plan draws a layout bucket by bucket


DEALT, LABELS = 6_000, 4_000  # records whose beliefs are measured at most, and labels of the first fit
SCHEDULE, FURTHER = Schedule(15, 4, 8, 20), Schedule(8, 2, 8, 15)  # of the first fit, and of one to more labels


class ReleasePreview(NamedTuple):
    """Facts of a plan, the problem that it solves, and where a trial layout is drawn its lists and its channel."""

    facts: BucketizePlan
    problem: BucketProblem
    runs: BucketRuns | None
    channel: Channel | None


def make_plan_facts(db: Relations, source: Records, params: Bucketize) -> BucketizePlan:
    """Return the facts of the plan, with the seconds of a processor that it took; raises as ``plan_buckets``."""
    preview, previews = preview_release(db, source, params, stored=source.history.setting), ReleasePreviews(db, source)
    remarks, guessing = _list_remarks(preview, params, previews), max(source.counts) / sum(source.counts)
    return BucketizePlan.join_parts(
        preview.facts, remarks=remarks, guessing=guessing, **previews.predict_model(preview)
    )


def preview_release(
    db: Relations,
    source: Records,
    params: Bucketize,
    stored: Mapping[str, object] | None = None,
) -> ReleasePreview:
    """Return what counts and a trial layout tell; ``stored`` and errors as of ``plan_buckets``."""
    plan, problem = plan_buckets(db, source, params, stored)
    facts = plan_facts(plan, problem, params, sum(source.counts))
    columns = bounds.read_columns(db, temp_table("domain"), source.roles)
    even, fakes = params.effective_layout in ("blocks", "round-robin"), params.fake_values > 0
    assignment = PlannedAssignment(plan, problem, even=even, fakes=fakes)
    implied = imply_beliefs(assignment, {part.name: part.texts for part in columns})
    runs = _draw_runs(plan, problem, params)
    if runs is not None:
        reserve_memory(db, runs)
    drawn = runs if runs is not None and runs.values <= LARGE else None
    channel = make_channel(drawn.count_meetings(facts.fake_values), facts).channel if drawn is not None else None
    through = [channel_facts(channel)] if channel is not None else []
    foreseen = [
        (problem.label(code), fraction_text(threshold), fraction_text(assignment.imply_belief((code,))[0]))
        for code, threshold in enumerate(problem.thresholds)
    ]
    seconds = round(plan.seconds, 6)
    planned = BucketizePlan.join_parts(facts, *through, implied, foreseen=foreseen, search_seconds=seconds)
    planned = BucketizePlan.join_parts(planned, not_allowed=_not_allowed(planned, problem, params))
    return ReleasePreview(planned, problem, runs, channel)


@dataclass(frozen=True)
class ReleasePreviews:
    """Previews of releases of one source by several parameters, none of them made twice."""

    db: Relations
    source: Records
    _known: dict[str, ReleasePreview] = field(default_factory=dict)

    def try_parameters(self, keywords: dict[str, Any]) -> ReleasePreview | str:
        """Return what counts and a trial layout tell of parameters, or why nothing would be published by them."""
        try:
            params = Bucketize.model_validate(keywords)
            key = params.model_dump_json()
            if key not in self._known:
                self._known[key] = preview_release(self.db, self.source, params)
        except ValidationError as error:
            return str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        except (InfeasibleError, UsageError) as error:
            return str(error)
        certain = ", ".join(self._known[key].facts.not_allowed)
        return f"makes values certain: {certain}" if certain else self._known[key]

    def predict_model(self, preview: ReleasePreview) -> dict[str, float | None]:
        """Return what a model would know of a planned release; nothing where none is fitted, or no layout is drawn.

        ``learning_belief``: of the learning attacker in its best guess, on average; ``count_error``: mean relative
        error of counts of ``LOW`` to ``HIGH`` by the model of ``privsql fit``, None where no value has so many records.
        """
        roles, values = self.source.roles, len(self.source.counts)
        fitted = not preview.facts.fake_values and len(roles.sensitive) == 1 and bool(roles.quasi_identifiers)
        if not fitted or preview.runs is None or find_obstacle(preview.problem.records, values):
            return {}
        if not self.db.keeps_order:
            return {}
        belief, error = self._predictor.predict(preview.runs)
        error = None if preview.problem.bounds else error  # an attacker fits a model all the same
        return {"learning_belief": belief, "count_error": error}

    @cached_property
    def _predictor(self) -> ModelPredictor:
        return ModelPredictor(LabelledRecords.read(self.db, self.source))


def _draw_runs(plan: Plan, problem: BucketProblem, params: Bucketize) -> BucketRuns | None:
    """Return what buckets list by a layout of this plan, drawn for that; None where drawing one takes long."""
    if problem.records > MOST and (params.effective_layout == "largest-first" or len(problem.trees) > 1):
        return None
    laid = plan_lists(plan, problem.counts, params.fake_values) if params.fake_values else plan
    noise = seed_key(1).random_generator("plan")
    return make_layout(laid, params.effective_layout, noise, problem.trees).list_runs(laid.setting)


def _list_remarks(preview: ReleasePreview, params: Bucketize, previews: ReleasePreviews) -> list[str]:
    """Return what to know of ``informative`` before it is published."""
    if params.algorithm != "informative":
        return []
    if len(set(preview.problem.thresholds)) == 1:
        return ["thresholds are the same for every value: nothing is to be gained from 'informative'"]
    keywords = params.model_dump(mode="json", exclude_none=True, exclude={"layout"})
    other, mean = previews.try_parameters(keywords | {"algorithm": "two-size"}), preview.facts.mean_belief
    if isinstance(other, str) or other.facts.mean_belief is None or mean is None:
        return []
    return [f"beliefs are near thresholds: mean belief {mean:.3f}, {other.facts.mean_belief:.3f} with 'two-size'"]


def _not_allowed(facts: BucketizePlan, problem: BucketProblem, params: Bucketize) -> list[str]:
    """Return the values that publishing would refuse, as they would be certain."""
    allowed = bounds.allowed_values(params, problem.labels, problem.thresholds)
    if allowed is None or facts.highest_belief is None:
        return []
    columns, excused = facts.highest_belief.components, {problem.label(code) for code in allowed}
    return [
        value if len(columns) == 1 else f"{name}: {value}"
        for name, of in columns.items()
        for value, most in of.items()
        if most == "1" and value not in excused
    ]


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
POWERS = np.linspace(0.7, 1.2, 11)
STEADY = 200  # records of all values by which eta of one is steadied: few are dealt of each, and errors go by 1/eta


@dataclass(frozen=True)
class LabelledRecords:
    """Every k-th record of a source: ``columns`` (r,) each, the ``labels`` (r,) are codes; ``counts`` (m,) of all."""

    columns: dict[str, NDArray[Any]]
    labels: Ints
    counts: Ints

    @staticmethod
    def read(db: Relations, source: Records) -> LabelledRecords:
        """Read at most ``READ`` records, spread evenly; the same ones each time where records are integers."""
        counts, roles = np.array(source.counts, dtype=np.int64), source.roles
        if source.packed is not None:
            rows = source.packed.sample_rows(READ)
        else:
            step, number, parts = -(-int(counts.sum()) // READ), 0, []
            with db.stream_batches(source.coded_records(ordered=False), BATCH) as coded:
                for batch in coded:
                    parts.append(pa.table(batch).take(np.arange(-number % step, len(batch), step)))
                    number += len(batch)
            rows = pa.concat_tables(parts).combine_chunks()
        fields = zip(roles.quasi_identifiers, roles.qi_keys, strict=True)
        columns = {field.name: code_column(rows[key], field) for field, key in fields}
        return LabelledRecords(columns, rows["code"].to_numpy().astype(np.int64), counts)

    def select_records(self, chosen: NDArray[np.intp]) -> LabelledRecords:
        """Return some of the records."""
        columns = {name: column[chosen] for name, column in self.columns.items()}
        return LabelledRecords(columns, self.labels[chosen], self.counts)


@dataclass(frozen=True)
class ModelPredictor:
    """Predict models of several releases of the same records: labels, the first fit and questions are shared."""

    labelled: LabelledRecords

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
        number = min(int(FIRST_SHARE * self.attacked), LABELS, len(self.order) // 3)
        return self._fit_labels(self.order[: max(1, number)])

    @cached_property
    def questions(self) -> tuple[Floats, Floats]:
        """Return the questions of which the error is predicted, as ``predict_error`` takes them."""
        return _draw_questions(self.labelled, seed_key(1).random_generator("questions"))

    def predict(self, runs: BucketRuns) -> tuple[float, float | None]:
        """Return belief and error of a model of records in buckets with the lists of ``runs``, without a fit."""
        records, first = len(self.order), self.first_fit
        bucket, slots = _choose_lists(runs, min(DEALT, records // 3))
        rest = self.order[first.records :]
        dealt = rest[_choose_records(self.labelled.labels[rest], slots, seed_key(1).random_generator("dealt"))]
        lists = self.labelled.select_records(dealt), bucket, slots
        left = self.order[~np.isin(self.order, dealt)]
        taught = left[: max(1, int(measure_posterior(first, *lists).share * self.attacked))]
        found = measure_posterior(self._fit_labels(taught, first), *lists)
        return found.belief, found.predict_error(*self.questions)

    def _fit_labels(self, chosen: NDArray[np.intp], begun: LabelFit | None = None) -> LabelFit:
        """Return the model that is fitted to some of the labels; ``begun``: goes on where that fit of others ended."""
        taught, counts = self.labelled.select_records(chosen), self.labelled.counts
        first, member, sizes = combine_rows(list(taught.columns.values()))
        columns = {name: column[first] for name, column in taught.columns.items()}
        features = FeatureMap(columns, sizes) if begun is None else begun.features
        offset = np.log(np.maximum(counts, 1) / counts.sum())
        design, labels = features.make_design(columns, sizes), np.zeros((len(first), len(counts)))
        np.add.at(labels, (member, taught.labels), 1)
        start, schedule = start_fit(design, len(counts)), SCHEDULE
        if begun is not None:
            start, schedule = begun.fit, FURTHER
        fit = fit_softmax(design, LabelLikelihood(labels), offset, start, schedule)
        return LabelFit(len(chosen), features, fit, offset)


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
        """Return eta of all values; 1 where there is one value, so that nothing is open."""
        prior = self.prior.sum()
        return float(np.clip(1 - self.open.sum() / prior, 0, 1)) if prior > 0 else 1.0

    def predict_error(self, shares: Floats, counts: Floats) -> float | None:
        """Return the mean relative error of ``counts`` (q, K) from ``LOW`` to ``HIGH``, of ``shares`` (q,) of all."""
        added = STEADY * self.prior.sum() / max(float(self.weights.sum()), 1)  # as of so many records of all values
        prior, open_ = self.prior + added, self.open + added * (1 - self.share)
        share = 1 - np.divide(open_, prior, out=np.ones_like(prior), where=prior > 0)
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
    fit: SoftmaxFit
    offset: Floats


def measure_posterior(fitted: LabelFit, dealt: LabelledRecords, bucket: Ints, slots: Ints) -> PosteriorSums:
    """Return what is believed of ``dealt`` records in buckets (s,) that list their values, after labels of others."""
    values = len(dealt.counts)
    entries, count = np.unique(bucket * values + slots, return_counts=True)
    arrays = ReleaseArrays(dealt.columns, bucket, entries // values, entries % values, count, [None] * values)
    prepared = prepare_release(arrays, fitted.features)
    likelihood = prepared.likelihood
    probabilities = prepared.design.probabilities(fitted.fit.theta, fitted.offset)
    belief, power = calibrate_power(likelihood, probabilities)
    probabilities = raise_power(probabilities, power)
    _, value, weight = list_weights(likelihood.find_posteriors(probabilities, settled=True))
    prior = probabilities[likelihood.member]

    def sum_values(amounts: Floats) -> Floats:
        return np.asarray(np.bincount(value, amounts, values), dtype=np.float64)

    left = prior * (1 - prior)
    return PosteriorSums(belief, sum_values(weight), sum_values(weight * (1 - weight)), left.sum(axis=0))


def calibrate_power(likelihood: BucketLikelihood, probabilities: Floats) -> tuple[float, float]:
    """Return the mean belief in the best guess by the power of p by which lists are likeliest, and that power."""
    found = []
    for power in POWERS.tolist():
        powered = raise_power(probabilities, power)
        batches = list(likelihood.find_posteriors(powered))
        value = sum(float(batch.logs.sum()) for batch in batches)
        best = np.concatenate([_best_beliefs(batch).ravel() for batch in batches])
        found.append((value, float(best.mean()), power))
    return max(found)[1:]


def raise_power(probabilities: Floats, power: float) -> Floats:
    """Return p (rows, K) to a power."""
    powered = probabilities**power
    return np.asarray(powered / powered.sum(axis=1, keepdims=True))


def _best_beliefs(batch: Batch) -> Floats:
    """Return the largest belief in a value for every record (b, z): a value may have several slots."""
    same = batch.of.values[:, :, None] == batch.of.values[:, None, :]
    return np.asarray((batch.beliefs @ (same & (batch.of.counts[:, None] > 0))).max(axis=2))


# Other thresholds -----------------------------------------------------------------------------------------------------

FACTORS = tuple(map(Fraction, ("1/2", "3/4", "1", "3/2", "2", "3")))
CURVE = (
    AlternativeMeasure("highest_belief", "highest belief of an attacker who finds a record (promised)", ".1%"),
    AlternativeMeasure("learning_belief", "belief of the learning attacker (not promised)", ".1%"),
    AlternativeMeasure("count_error", f"error of a count of {LOW} to {HIGH:,} records", ".1%"),
)


def predict_curve(db: Relations, source: Records, params: Bucketize) -> Curve:
    """Return the multiples of the stated threshold by ``FACTORS``; ``UsageError`` if a query or buckets state it."""
    rule = params.threshold.default
    if rule is None or params.setting is not None:
        raise UsageError("curve: give one threshold, such as '8*f + 0.02', in place of a query or a setting")
    previews, rows = ReleasePreviews(db, source), []
    stated = params.model_dump(mode="json", exclude_none=True)
    for factor in FACTORS:
        scaled = Linear(rule.slope * factor, rule.intercept * factor)
        if not scaled.slope and scaled.intercept >= 1:
            continue
        threshold = {**stated["threshold"], "default": str(scaled)}
        preview = previews.try_parameters(stated | {"threshold": threshold})
        if isinstance(preview, str):
            rows.append(Alternative(str(scaled), {}, preview))
            continue
        figures: dict[str, Figure] = {"highest_belief": preview.facts.peak}
        rows.append(Alternative(str(scaled), figures | previews.predict_model(preview)))
    return Curve(CURVE, rows, "thresholds are multiples of the stated one; errors are those after 'privsql fit'")


# Alternatives ---------------------------------------------------------------------------------------------------------

QUESTIONS = [(f"error_{count}_at_{share}", count, share) for share, count in product((0.01, 0.05), (100, 500, 2000))]
MEASURES = (
    AlternativeMeasure("loss", "loss", ",.0f"),
    AlternativeMeasure("information", "share used of what thresholds allow", ".0%", lowest=False),
    AlternativeMeasure("highest_belief", "highest belief", ".1%"),
    AlternativeMeasure("mean_belief", "mean belief", ".1%"),
    *(
        AlternativeMeasure(key, f"error of a count of {count:,} in {share:.0%} of the records", ".1%")
        for key, count, share in QUESTIONS
    ),
)


def compare_algorithms(db: Relations, source: Records, params: Bucketize) -> Alternatives:
    """Return all of them for the specification ``params``, whose layout and search hold for its own algorithm alone.

    ``information``, tr M / sum f': how much of the beliefs that thresholds allow is used (``find_informative``). Errors
    are what ``relative_error`` expects of a question that selects a share of the records.
    """
    names = (*ALGORITHMS, *(["setting"] if params.setting is not None else []))
    previews = ReleasePreviews(db, source)
    rows = [_preview_alternative(previews, params, name) for name in names]
    return Alternatives(MEASURES, rows, _advise_algorithm(rows, params.algorithm))


def _preview_alternative(previews: ReleasePreviews, params: Bucketize, name: str) -> Alternative:
    keywords: dict[str, Any] = params.model_dump(mode="json", exclude_none=True) | {"algorithm": name}
    if name != params.algorithm:
        keywords = {key: value for key, value in keywords.items() if key not in ("layout", "setting")}
    preview = previews.try_parameters(keywords)
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
