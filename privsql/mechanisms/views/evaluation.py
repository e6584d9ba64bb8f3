"""Measure how good a release of item sets is, by any algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil, log
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from sqlglot import exp

from privsql.answers import accuracy
from privsql.engine.database import report_steps
from privsql.engine.sqlfiles import DIALECT, column
from privsql.errors import UsageError
from privsql.keyed_random import seed_key
from privsql.mechanisms.views.item_sets import WeightedSets, read_sets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from fractions import Fraction

    from privsql.answers.accuracy import EvaluationContext
    from privsql.model.estimates import Estimate


def top_utility(
    true: Sequence[tuple[tuple[int, ...], float]], ranked: Sequence[tuple[tuple[int, ...], float]], number: int
) -> float:
    """1 - mean relative difference of the supports of the true top sets; one that was not found has support 0.

    Source: Chen et al. 2011, appendix E.
    """
    known = dict(ranked[:number])
    missed = [abs(known.get(chosen, 0.0) - support) / support for chosen, support in true[:number]]
    return 1 - sum(missed) / max(1, len(missed))


# Questions ------------------------------------------------------------------------------------------------------------
# How good a release of item sets is: what analysts ask of it, by class, whatever algorithm made it.
#
# ``item``: single items; ``pair``: two of the most frequent items; ``rec1`` .. ``rec4``: as many items of a random
# record. Besides the literature's counting queries, over random items by length, and frequent item sets (Chen et al.
# 2011, section 5.1), and whether the most frequent items are found.

SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)  # classes of queries: lengths up to this share of the longest record
TOPS = (20, 50, 100)
LARGEST = 4  # items of a random record that are asked for
Asked = tuple[int, ...]


@runtime_checkable
class HasItems(Protocol):
    """A release of item sets, open, by whatever algorithm."""

    item_labels: tuple[str, ...]
    """Text of the items, in the order of the universe."""

    def containing(self, codes: Sequence[int], estimator: str, confidence: float) -> Estimate:
        """The number of records that contain all of some items, as ``list_has_all`` gets it."""

    def list_frequent(self, top: int, estimator: str) -> list[tuple[list[str], float]]:
        """The most frequent item sets."""


@runtime_checkable
class IsTree(Protocol):
    """A release of item sets by DiffPart, open."""

    published_sets: WeightedSets
    """The sets that were kept, with their noisy counts."""
    usefulness: Usefulness


def by_length(longest: int, queries: int, items: int, draw: np.random.Generator) -> list[tuple[float, list[Asked]]]:
    """Queries by class: lengths uniform in 1 .. share * longest, items uniform without repetition."""
    result = []
    for share in SHARES:
        most = min(max(1, int(share * longest + 1e-9)), items)
        lengths = draw.integers(1, most + 1, queries).tolist()
        queries_of_length = [tuple(sorted(draw.choice(items, length, replace=False).tolist())) for length in lengths]
        result.append((share, queries_of_length))
    return result


def draw_queries(true: WeightedSets, queries: int, draw: np.random.Generator) -> dict[str, list[Asked]]:
    """Queries by class, at most so many of each; a class of which there is none is left out."""
    items = np.arange(true.items) if true.items <= queries else np.sort(draw.choice(true.items, queries, replace=False))
    best = np.argsort(-true.item_weights, kind="stable")[: max(TOPS)]
    pairs = [draw.choice(best, 2, replace=False) for _ in range(queries)] if len(best) > 1 else []
    result = {"item": [(code,) for code in items.tolist()], "pair": [tuple(sorted(one.tolist())) for one in pairs]}
    lengths = np.diff(true.starts)
    for size in range(1, LARGEST + 1):
        chance = np.where(lengths >= size, true.weights, 0.0)
        chosen = draw.choice(len(chance), queries, p=chance / chance.sum()).tolist() if chance.any() else []
        held = [true.codes[true.starts[at] : true.starts[at + 1]] for at in chosen]
        result[f"rec{size}"] = [tuple(sorted(draw.choice(one, size, replace=False).tolist())) for one in held]
    return {name: class_queries for name, class_queries in result.items() if class_queries}


def evaluate_sets(context: EvaluationContext) -> accuracy.Evaluated:
    """Questions by class and the most frequent items and item sets; or a file of queries."""
    workload, sets = context.workload, context.answers
    if workload.file is not None:
        return accuracy.by_questions(context)
    if workload.kind != "equality":
        raise UsageError(f"workload {workload.kind!r}: a release of item sets takes a file, or queries by class")
    if not isinstance(sets, HasItems):
        raise TypeError(type(sets).__name__)
    if sets.item_labels != tuple(context.records.labels):
        raise UsageError("the specification's universe is not that of the release")
    return _evaluate_classes(context, sets, read_sets(context.records))


def _evaluate_classes(context: EvaluationContext, sets: HasItems, true: WeightedSets) -> accuracy.Evaluated:
    key = seed_key(context.workload.seed)
    lengths = by_length(
        true.longest_set, context.workload.per_class, true.items, key.random_generator("workload", "items")
    )
    questions: dict[str, list[Asked]] = draw_queries(
        true, context.workload.per_class, key.random_generator("workload", "records")
    )
    questions |= {str(share): queries for share, queries in lengths}
    truth = {one: float(true.weights[true.sets_with_all(one)].sum()) for part in questions.values() for one in part}
    bounds = bound_errors(true, sets, questions, 1 - context.confidence) if isinstance(sets, IsTree) else {}
    best = true.top_sets(max(TOPS))
    write_question = containment_sql(context, sets)
    answer = cache(lambda codes, estimator: sets.containing(codes, estimator, context.confidence))

    def ask(codes: Asked, of: str) -> dict[str, accuracy.Score]:
        result = {name: accuracy.Score() for name in context.estimators if context.workload.is_wanted(truth[codes])}
        for name, score in result.items():
            one: Estimate = answer(codes, name)
            figures = one.estimate, one.low, one.high
            score.add(truth[codes], figures, accuracy.QuestionKey(write_question(codes), (), of))
        return result

    scores, extras = {}, {}
    for name, result in accuracy.score_classes(context, questions, ask).items():
        scores[name] = accuracy.join_scores(result.values())
        largest = {of: one.largest_error for of, one in result.items() if of in bounds}
        classes = [
            {"length_share": share, **_rename_errors(result.pop(str(share)).summarize_band(context.records.records))}
            for share in SHARES
        ]
        extras[name] = {
            **accuracy.by_class(result, context.records.records),
            "classes": classes,
            "useful": [{"class": of, "largest_error": error, "epsilon": bounds[of]} for of, error in largest.items()],
            "top": score_top_sets(best, sets, name),
            "top_items": top_items(context, sets, true, name),
        }
    return accuracy.Evaluated(scores, {}, context.confidence, extras)


# Usefulness ---
# With probability 1 - delta no question of a class errs by more than epsilon records (Chen et al. 2011, Definition
# 3.5).


@dataclass(frozen=True)
class Usefulness:
    """Bounds of the errors of a release by DiffPart (Theorem 4.2), whatever its data.

    ``budget``: every count spends at least as much; ``threshold``: every noisy size that is kept is at most as large.
    """

    budget: Fraction
    threshold: int

    def bound_error(self, covered: int, sets: int, doubt: float) -> int:
        """Return epsilon: covered * (ceil(ln(sets/doubt)/budget) + threshold), in records.

        With probability 1 - ``doubt`` the noise of all ``sets`` lies within that logarithm; a set that was pruned held
        at most the threshold and the noise, and one that nobody has exceeds the threshold by noise alone. A question
        that ``covered`` sets answer errs by the sum.
        """
        return covered * (ceil(log(max(sets, 1) / doubt) / float(self.budget)) + self.threshold)


def bound_errors(
    true: WeightedSets, release: IsTree, questions: Mapping[str, Sequence[Asked]], doubt: float
) -> dict[str, int]:
    """The bound of every class of questions that hold but for a chance of ``doubt``, for all of its questions at once.

    A question is answered by the sets that hold its items, of the source and of the release together. Which sets that
    nobody has were kept depends on noise: half of the doubt is for the source's sets, half for those.
    """
    known, kept = set(true.list_sets()), release.published_sets
    strange = np.array([one not in known for one in kept.list_sets()], dtype=bool)
    sets = 2 * max(len(true.weights), int(strange.sum()))
    result = {}
    for name, asked in questions.items():
        covered = [
            int(true.sets_with_all(one).sum() + (kept.sets_with_all(one) & strange).sum())
            for one in dict.fromkeys(asked)
        ]
        result[name] = release.usefulness.bound_error(max(covered, default=0), sets, doubt)
    return result


def containment_sql(context: EvaluationContext, sets: HasItems) -> Callable[[Asked], str]:
    """Return what writes the SQL that counts the records with all of some items."""
    field = context.records.roles.sensitive[0]

    @cache
    def literal(code: int) -> str:
        item = accuracy.make_equality(exp.null(), sets.item_labels[code], field.type.removesuffix("[]")).expression
        return str(item.sql(dialect=DIALECT))

    hole = "items"
    condition = exp.func("list_has_all", column(field.name), exp.Placeholder(this=hole))
    before, after = accuracy.count_query(context.name, condition, []).rsplit(f"${hole}", 1)
    return cache(lambda codes: f"{before}[{', '.join(map(literal, codes))}]{after}")


def _rename_errors(figures: accuracy.Band) -> accuracy.Band:
    """The error of a class by length under the name that it has there."""
    return {"mean_relative_error" if key == "mean_error" else key: value for key, value in figures.items()}


def score_top_sets(best: Sequence[tuple[Asked, float]], sets: HasItems, estimator: str) -> dict[str, float]:
    """Utility of the release's frequent item sets beside the source's, by how many are asked for."""
    code = {label: at for at, label in enumerate(sets.item_labels)}
    listed = [(tuple(code[one] for one in items), size) for items, size in sets.list_frequent(max(TOPS), estimator)]
    return {str(number): top_utility(best, listed, number) for number in TOPS}


def top_items(
    context: EvaluationContext, sets: HasItems, true: WeightedSets, estimator: str
) -> dict[str, dict[str, float | None]]:
    """Of the K most frequent items, where there are more: which part of these is among the K with the largest estimates
    (precision), and their mean error. Among equal estimates it is chance which come first.
    """
    smaller = [number for number in TOPS if number < true.items]
    if not smaller:
        return {}
    context.report.start_step(f"Looking for the most frequent items, {estimator}")
    codes = report_steps(context.report, range(true.items), true.items)
    answers = [sets.containing((code,), estimator, context.confidence).estimate for code in codes]
    estimate = np.array([0.0 if one is None else one for one in answers])
    chance = seed_key(context.workload.seed).random_generator("workload", "ties").permutation(true.items)
    ours, theirs = np.lexsort((chance, -estimate)), np.argsort(-true.item_weights, kind="stable")
    errors = np.abs(estimate - true.item_weights) / np.maximum(
        true.item_weights, accuracy.SANITY * max(1, context.records.records)
    )
    return {
        str(number): {
            "precision": len(np.intersect1d(ours[:number], theirs[:number])) / number,
            "mean_error": float(errors[theirs[:number]].mean()),
        }
        for number in smaller
    }
