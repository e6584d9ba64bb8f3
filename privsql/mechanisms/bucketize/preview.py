"""Predict releases from plans without publishing: facts, beliefs and errors, also for other parameters.

Some of it needs a trial layout: a random assignment of the records to buckets, which is not published.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import ValidationError

from privsql.answers.bucket_model import find_obstacle, fit_bucket_model
from privsql.answers.channel import LARGE, Channel, relative_error
from privsql.answers.learned_prior import code_column
from privsql.engine.remote import BATCH
from privsql.engine.sqlfiles import temp_table
from privsql.errors import InfeasibleError, UsageError
from privsql.exact import Linear, fraction_text
from privsql.keyed_random import seed_key
from privsql.mechanisms.base import Alternative, AlternativeMeasure, Alternatives, Curve, Figure
from privsql.mechanisms.bucketize import bounds
from privsql.mechanisms.bucketize.estimator import channel_facts, find_even_shares, make_channel
from privsql.mechanisms.bucketize.fakes import plan_lists
from privsql.mechanisms.bucketize.implied import PlannedAssignment, imply_beliefs
from privsql.mechanisms.bucketize.layout import make_layout
from privsql.mechanisms.bucketize.parameters import Bucketize, BucketizePlan
from privsql.mechanisms.bucketize.plan import ALGORITHMS, plan_buckets, plan_facts
from privsql.mechanisms.bucketize.precision import foresee_precision
from privsql.mechanisms.bucketize.publish import reserve_memory
from privsql.model.arrays import ReleaseArrays
from privsql.model.checks import VerifiedBound
from privsql.model.precision import ASKED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from privsql.engine.database import Relations
    from privsql.mechanisms.bucketize.layout import BucketRuns
    from privsql.mechanisms.bucketize.model import BucketProblem, Ints, Plan
    from privsql.model.records import Records

# Plans ----------------------------------------------------------------------------------------------------------------
# Loss and beliefs follow from the counts of values. The channel, and so the errors of answers, need a trial layout.

MOST = 1_000_000  # with more records, no trial layout is drawn if that means bucket by bucket


class ReleasePreview(NamedTuple):
    """What can be said of a release before it is published.

    Attributes:
        facts: The facts of the plan.
        problem: The counts and bounds that the plan satisfies.
        runs: What buckets list in a trial layout (a random assignment of records that is not published); None if
            drawing one takes too long.
        channel: How often values share buckets in the trial layout, as a linear channel from true to listed values;
            None without trial layout, or if there are very many values.
    """

    facts: BucketizePlan
    problem: BucketProblem
    runs: BucketRuns | None
    channel: Channel | None


def make_plan_facts(db: Relations, source: Records, params: Bucketize) -> BucketizePlan:
    """Return what ``privsql plan`` shows: the facts of the plan, remarks, and what an attacker can learn.

    It raises ``InfeasibleError`` if there is no plan, and ``UsageError`` for a wrong threshold or bound.
    """
    preview, previews = preview_release(db, source, params, stored=source.history.setting), ReleasePreviews(db, source)
    remarks, guessing = _list_remarks(preview, params, previews), max(source.counts) / sum(source.counts)
    return BucketizePlan.join_parts(
        preview.facts, remarks=remarks, guessing=guessing, learning_belief=previews.measure_learning(preview)
    )


def preview_release(
    db: Relations,
    source: Records,
    params: Bucketize,
    stored: Mapping[str, object] | None = None,
    *,
    proving: bool = True,
) -> ReleasePreview:
    """Plan a release, deal records to buckets for trial, and return the facts and predictions that follow.

    Args:
        db: The engine that holds the source's values.
        source: The source.
        params: The parameters.
        stored: The stored plan of an earlier release by the same request, which saves the search; None to search.
        proving: Whether the search also proves a lower bound of the loss, the sum of (size - 1)^2 over all buckets. If
            not, it is shorter.

    Raises:
        InfeasibleError: There is no plan.
        UsageError: A threshold or a bound is wrong.
    """
    plan, problem = plan_buckets(db, source, params, stored, proving=proving)
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
    shares: Sequence[float | None] = find_even_shares(channel).tolist() if channel else [None] * len(problem.counts)
    foreseen = [
        (
            problem.label(code),
            fraction_text(threshold),
            fraction_text(assignment.imply_belief((code,))[0]),
            int(problem.counts[code]),
            shares[code],
        )
        for code, threshold in enumerate(problem.thresholds)
    ]
    seconds = round(plan.seconds, 6)
    planned = BucketizePlan.join_parts(facts, *through, implied, foreseen=foreseen, search_seconds=seconds)
    planned = BucketizePlan.join_parts(planned, not_allowed=_not_allowed(planned, problem, params))
    return ReleasePreview(planned, problem, runs, channel)


@dataclass(frozen=True)
class ReleasePreviews:
    """Previews of releases of one source under different parameters. Each preview is computed once and kept."""

    db: Relations
    source: Records
    _known: dict[str, ReleasePreview] = field(default_factory=dict)

    def try_parameters(self, keywords: dict[str, Any]) -> ReleasePreview | str:
        """Preview the release that some parameters would make.

        Args:
            keywords: The parameters of ``Bucketize``, by name.

        Returns:
            The preview; or a sentence that says why the parameters are refused: they are invalid, infeasible, or make
            values certain.
        """
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

    def measure_learning(self, preview: ReleasePreview) -> float | None:
        """Return how much an attacker could learn from the planned release by fitting a model to it.

        It is the mean belief in the attacker's best guess. The model is fitted to a part of the buckets. The result is
        None if no model can be fitted, or if there is no trial layout (a random assignment of records to buckets).
        """
        roles = self.source.roles
        fitted = not preview.facts.fake_values and len(roles.sensitive) == 1 and bool(roles.quasi_identifiers)
        if not fitted or preview.runs is None or not self.db.keeps_order:
            return None
        dealt = self._labelled.deal(preview.runs)
        if find_obstacle(len(dealt.bucket), preview.runs.values):
            return None
        return fit_bucket_model(dealt, DIGEST).find_beliefs().best_guess

    @cached_property
    def _labelled(self) -> LabelledRecords:
        return LabelledRecords.read(self.db, self.source)


def _draw_runs(plan: Plan, problem: BucketProblem, params: Bucketize) -> BucketRuns | None:
    """Deal records to planned buckets for trial, and return what the buckets list; None if that takes too long.

    Args:
        plan: The bucket sizes, and how many records of each value go to each size.
        problem: The counts and bounds that the plan satisfies.
        params: The parameters, which name the layout (the way to deal records) and the number of fake values.
    """
    if problem.records > MOST and (params.effective_layout == "largest-first" or len(problem.trees) > 1):
        return None
    laid = plan_lists(plan, problem.counts, params.fake_values) if params.fake_values else plan
    noise = seed_key(1).random_generator("plan")
    return make_layout(laid, params.effective_layout, noise, problem.trees).list_runs(laid.setting)


def _list_remarks(preview: ReleasePreview, params: Bucketize, previews: ReleasePreviews) -> list[str]:
    """Return a remark that compares the mean belief by the algorithm ``informative`` with that by ``two-size``.

    A higher mean belief in true values makes answers more precise. The list is empty for other algorithms.
    """
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
    """Return the values that the release would make certain without permission, so that publishing would be refused."""
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


# Learning -------------------------------------------------------------------------------------------------------------
# What an attacker learns from the planned release is measured on a part of it. Records of the source are dealt to some
# buckets of the plan, as a release would deal them, and the attacker's model is fitted to these. A part teaches less
# than the whole release would.

DIGEST = "0" * 64  # belongs to no release; it seeds the model
READ = 40_000  # records that are read at most
DEALT = 8_000  # about how many of these are dealt to buckets


@dataclass(frozen=True)
class LabelledRecords:
    """A sample of r records of the source with their sensitive values, to fill buckets of a planned release for trial.

    Attributes:
        columns: The quasi-identifiers of each record, by name (r,).
        labels: The code of each record's sensitive value (r,).
    """

    columns: dict[str, NDArray[Any]]
    labels: Ints

    @staticmethod
    def read(db: Relations, source: Records) -> LabelledRecords:
        """Read at most ``READ`` records, spread evenly over the source.

        If the source is held in memory as sorted integers, it is the same sample each time.
        """
        roles = source.roles
        if source.packed is not None:
            rows = source.packed.sample_rows(READ)
        else:
            step, number, parts = -(-sum(source.counts) // READ), 0, []
            with db.stream_batches(source.coded_records(ordered=False), BATCH) as coded:
                for batch in coded:
                    parts.append(pa.table(batch).take(np.arange(-number % step, len(batch), step)))
                    number += len(batch)
            rows = pa.concat_tables(parts).combine_chunks()
        fields = zip(roles.quasi_identifiers, roles.qi_keys, strict=True)
        columns = {field.name: code_column(rows[key], field) for field, key in fields}
        return LabelledRecords(columns, rows["code"].to_numpy().astype(np.int64))

    def deal(self, runs: BucketRuns) -> ReleaseArrays:
        """Fill some whole buckets of a planned release with records of the sample, to attack them before publishing.

        Args:
            runs: What the buckets of the planned release list.

        Returns:
            These buckets as the arrays of a release, to which the attacker's model can be fitted.
        """
        bucket, slots = _choose_lists(runs, min(DEALT, len(self.labels)))
        chosen = _choose_records(self.labels, slots, seed_key(1).random_generator("dealt"))
        entries, count = np.unique(bucket * runs.values + slots, return_counts=True)
        columns = {name: column[chosen] for name, column in self.columns.items()}
        listed = entries // runs.values, entries % runs.values, count
        return ReleaseArrays(columns, bucket, *listed, values=[None] * runs.values)


def _choose_lists(runs: BucketRuns, records: int) -> tuple[Ints, Ints]:
    """Choose whole buckets of a planned release that hold about ``records`` records together.

    They are spread evenly over the buckets of each size.

    Returns:
        (bucket, value), one entry for each listed value of the chosen buckets (s,).
    """
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
    """Choose for each listed value a random record that has it; if too few records have it, use some twice.

    Args:
        labels: The value of each record (r,).
        slots: The listed values (s,).
        noise: The random numbers.

    Returns:
        The position of the chosen record for each listed value (s,).
    """
    shuffled = noise.permutation(len(labels))
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    order = np.argsort(slots, kind="stable")
    first = np.searchsorted(labels[by_label], slots[order])
    have = np.maximum(np.searchsorted(labels[by_label], slots[order], side="right") - first, 1)
    rank = np.arange(len(slots)) - np.searchsorted(slots[order], slots[order])
    chosen = np.empty(len(slots), dtype=np.intp)
    chosen[order] = by_label[np.minimum(first + rank % have, len(labels) - 1)]
    return chosen


# Other thresholds -----------------------------------------------------------------------------------------------------

FACTORS = tuple(map(Fraction, ("1/2", "3/4", "1", "3/2", "2", "3")))
CURVE = (
    AlternativeMeasure("highest_belief", "highest belief of an attacker who finds a record (promised)", ".1%"),
    AlternativeMeasure("learning_belief", "belief of the learning attacker (not promised)", ".1%"),
    AlternativeMeasure("count_error", f"error of a count of {ASKED} of the worst protected value", ".1%"),
)


def predict_curve(db: Relations, source: Records, params: Bucketize) -> Curve:
    """Predict beliefs and errors of releases whose threshold is the stated one times 1/2, 3/4, 1, 3/2, 2 and 3.

    Raises:
        UsageError: The threshold comes from a query, or the publisher states the bucket setting.
    """
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
        bounds = [VerifiedBound(*one) for one in preview.facts.list_bounds()]
        learnt = previews.measure_learning(preview)
        figures |= {} if learnt is None else {"learning_belief": learnt}
        precision = foresee_precision(params, bounds)
        figures |= {} if precision is None else {"count_error": precision.error}
        rows.append(Alternative(str(scaled), figures))
    note = "thresholds are multiples of the stated one; errors are those without fit; learning is measured on a part"
    return Curve(CURVE, rows, note)


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
    """Predict the releases that all algorithms would make of one specification, to compare them.

    ``params`` may fix a layout (how records are dealt to buckets) and a setting (how many buckets of each size). Both
    are used for the algorithm in ``params`` only. The measure ``information`` is the sum of the mean beliefs in values
    over the sum of thresholds, so at most 1. Errors are predicted for questions that select a share of the records.
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
    """Return a sentence that names the algorithm with the smallest mean error, and compares it with the chosen one."""
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
    """Return the geometric mean of the predicted errors; None if none is predicted.

    Which errors are predicted depends on the frequencies of values alone, so means of algorithms can be compared.
    """
    known = [error for key, *_ in QUESTIONS if (error := figures.get(key))]
    return float(np.exp(np.mean(np.log(known)))) if known else None
