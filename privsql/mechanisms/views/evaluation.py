"""Measure how close the answers of an item-set release are to those of its source, whatever algorithm made it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from privsql.answers import accuracy
from privsql.engine.database import report_steps
from privsql.engine.sqlfiles import DIALECT, column
from privsql.errors import UsageError
from privsql.keyed_random import seed_key
from privsql.mechanisms.views.answers import ItemAnswers
from privsql.mechanisms.views.item_sets import read_sets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from privsql.answers.accuracy import EvaluationContext
    from privsql.mechanisms.views.item_sets import WeightedSets
    from privsql.model.estimates import Estimate

Asked = tuple[int, ...]


def top_utility(true: Sequence[tuple[Asked, float]], ranked: Sequence[tuple[Asked, float]], number: int) -> float:
    """Return 1 minus the mean relative error of the supports (numbers of records) of the most frequent item sets.

    A set that the release does not list has the estimate 0 (Chen et al. 2011, appendix E).

    Args:
        true: The item sets of the source with their supports, most frequent first.
        ranked: The item sets of the release with their estimated supports.
        number: How many of the most frequent sets of the source are compared.
    """
    known = dict(ranked[:number])
    missed = [abs(known.get(chosen, 0.0) - support) / support for chosen, support in true[:number]]
    return 1 - sum(missed) / max(1, len(missed))


# Questions ------------------------------------------------------------------------------------------------------------
# A release of item sets is scored by random questions of several classes, whatever algorithm made it.
#
# ``item``: single items; ``pair``: two of the most frequent items; ``rec1`` .. ``rec4``: one to four items of a random
# record. In addition there are the counting queries of the literature, over random items by length, and frequent item
# sets (Chen et al. 2011, section 5.1). The most frequent items are compared, too.

SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)  # classes of questions by length, up to these shares of the longest record
TOPS = (20, 50, 100)
LARGEST = 4  # most items of a random record in one question


def by_length(longest: int, queries: int, items: int, draw: np.random.Generator) -> list[tuple[float, list[Asked]]]:
    """Draw random item sets in classes by length: up to 20 %, 40 %, .. of the number of items of the longest record.

    Args:
        longest: The number of items of the longest record.
        queries: The number of item sets of each class.
        items: The number of items of the universe.
        draw: The random generator.

    Returns:
        For each class, its share of ``longest`` and its item sets. The lengths of these are uniform in 1 .. share *
        ``longest``, and their items are uniform.
    """
    result = []
    for share in SHARES:
        most = min(max(1, int(share * longest + 1e-9)), items)
        lengths = draw.integers(1, most + 1, queries).tolist()
        result.append((share, [tuple(sorted(draw.choice(items, one, replace=False).tolist())) for one in lengths]))
    return result


def draw_queries(true: WeightedSets, queries: int, draw: np.random.Generator) -> dict[str, list[Asked]]:
    """Draw random item sets for each class of questions; a question asks how many records contain a set.

    Class ``item`` has single items, and ``pair`` has pairs of the most frequent items. ``rec1`` to ``rec4`` have one to
    four items of a random record. Empty classes are left out.

    Args:
        true: The item sets of the source.
        queries: The most item sets of each class.
        draw: The random generator.

    Returns:
        By class, the codes of the items of each set.
    """
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
    return {name: asked for name, asked in result.items() if asked}


def evaluate_sets(context: EvaluationContext) -> accuracy.Evaluated:
    """Compare a release's answers with the true answers of its source.

    The questions come from the workload's file. Without a file they are drawn at random (``draw_queries``,
    ``by_length``), and the most frequent item sets are compared, too.
    """
    workload, sets = context.workload, context.answers
    if workload.file is not None:
        return accuracy.by_questions(context)
    if workload.kind != "equality":
        raise UsageError(f"workload {workload.kind!r}: a release of item sets takes a file, or queries by class")
    if not isinstance(sets, ItemAnswers):
        raise TypeError(type(sets).__name__)
    if sets.item_labels != tuple(context.records.labels):
        raise UsageError("the specification's universe is not that of the release")
    true, queries, key = read_sets(context.records), workload.per_class, seed_key(workload.seed)
    lengths = by_length(true.longest_set, queries, true.items, key.random_generator("workload", "items"))
    questions: dict[str, list[Asked]] = draw_queries(true, queries, key.random_generator("workload", "records"))
    questions |= {str(share): asked for share, asked in lengths}
    truth = {one: float(true.weights[true.sets_with_all(one)].sum()) for part in questions.values() for one in part}
    bounds = sets.bound_errors(true, questions, 1 - context.confidence)
    write_question = write_containment(context, sets.item_labels)
    answer = cache(lambda codes, estimator: sets.containing(codes, estimator, context.confidence))

    def ask(codes: Asked, of: str) -> dict[str, accuracy.Score]:
        result = {name: accuracy.Score() for name in context.estimators if workload.is_wanted(truth[codes])}
        for name, score in result.items():
            one: Estimate = answer(codes, name)
            question = accuracy.QuestionKey(write_question(codes), (), of)
            score.add(truth[codes], (one.estimate, one.low, one.high), question)
        return result

    scores, extras, best, records = {}, {}, true.top_sets(max(TOPS)), context.records.records
    code_of = {label: code for code, label in enumerate(sets.item_labels)}
    for name, result in accuracy.score_classes(context, questions, ask).items():
        scores[name] = accuracy.join_scores(result.values())
        largest = {of: one.largest_error for of, one in result.items() if of in bounds}
        classes = []
        for share in SHARES:
            band = result.pop(str(share)).summarize_band(records)
            figures = {"mean_relative_error" if key == "mean_error" else key: one for key, one in band.items()}
            classes.append({"length_share": share, **figures})
        listed = [(tuple(code_of[one] for one in items), size) for items, size in sets.list_frequent(max(TOPS), name)]
        extras[name] = {
            **accuracy.by_class(result, records),
            "classes": classes,
            "useful": [{"class": of, "largest_error": error, "epsilon": bounds[of]} for of, error in largest.items()],
            "top": {str(number): top_utility(best, listed, number) for number in TOPS},
            "top_items": top_items(context, sets, true, name),
        }
    return accuracy.Evaluated(scores, {}, context.confidence, extras)


def write_containment(context: EvaluationContext, labels: Sequence[str]) -> Callable[[Asked], str]:
    """Return a function that writes the SQL which counts the records with all items of a set."""
    field = context.records.roles.sensitive[0]

    @cache
    def literal(code: int) -> str:
        item = accuracy.make_equality(exp.null(), labels[code], field.type.removesuffix("[]")).expression
        return str(item.sql(dialect=DIALECT))

    condition = exp.func("list_has_all", column(field.name), exp.Placeholder(this="items"))
    before, after = accuracy.count_query(context.name, condition, []).rsplit("$items", 1)
    return cache(lambda codes: f"{before}[{', '.join(map(literal, codes))}]{after}")


def top_items(
    context: EvaluationContext, sets: ItemAnswers, true: WeightedSets, estimator: str
) -> dict[str, dict[str, float | None]]:
    """Return how well the release finds the K most frequent items, for several K below the number of items.

    Precision is the share of the true top K among the K items with the largest estimates; chance breaks ties. The error
    is the mean relative error of the counts of the true top K.

    Returns:
        For each K as text, the figures ``precision`` and ``mean_error``.
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
    least = accuracy.SANITY * max(1, context.records.records)
    errors = np.abs(estimate - true.item_weights) / np.maximum(true.item_weights, least)
    return {
        str(number): {
            "precision": len(np.intersect1d(ours[:number], theirs[:number])) / number,
            "mean_error": float(errors[theirs[:number]].mean()),
        }
        for number in smaller
    }
