"""How good a release of item sets is: what analysts ask of it, by class, whatever algorithm made it.

``item``: single items; ``pair``: two of the most frequent items; ``rec1`` .. ``rec4``: as many items of a random
record. Besides the literature's counting queries, over random items by length, and frequent item sets (Chen et al.
2011, section 5.1), and whether the most frequent items are found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from sqlglot import exp

from privsql.answers.accuracy import Evaluated, by_class, by_questions
from privsql.answers.scores import SANITY, Put, Score
from privsql.answers.workload import count_query, equals
from privsql.engine.progress import counted
from privsql.engine.sqlfiles import all_rows, column, fill, temp
from privsql.errors import UsageError
from privsql.mechanisms.setvalued.holdings import Holdings, utility
from privsql.noise import seed_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.answers.accuracy import Measuring
    from privsql.model.estimate import Estimate
    from privsql.model.records import Records

SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)  # classes of queries: lengths up to this share of the longest record
TOPS = (20, 50, 100)
LARGEST = 4  # items of a random record that are asked for
Asked = tuple[int, ...]


@runtime_checkable
class HasItems(Protocol):
    """A release of item sets, open, by whatever algorithm."""

    labels: tuple[str, ...]
    """Text of the items, in the order of the universe."""

    def containing(self, codes: Sequence[int], estimator: str, confidence: float) -> Estimate:
        """The number of records that contain all of some items, as ``list_has_all`` gets it."""

    def frequent(self, top: int, estimator: str) -> list[tuple[list[str], float]]:
        """The most frequent item sets."""


def by_length(longest: int, queries: int, items: int, draw: np.random.Generator) -> list[tuple[float, list[Asked]]]:
    """Queries by class: lengths uniform in 1 .. share * longest, items uniform without repetition."""
    found = []
    for share in SHARES:
        most = min(max(1, int(share * longest + 1e-9)), items)
        lengths = draw.integers(1, most + 1, queries).tolist()
        asked = [tuple(sorted(draw.choice(items, length, replace=False).tolist())) for length in lengths]
        found.append((share, asked))
    return found


def as_asked(true: Holdings, queries: int, draw: np.random.Generator) -> dict[str, list[Asked]]:
    """Queries by class, at most so many of each; a class of which there is none is left out."""
    items = np.arange(true.items) if true.items <= queries else np.sort(draw.choice(true.items, queries, replace=False))
    best = np.argsort(-true.singles, kind="stable")[: max(TOPS)]
    pairs = [draw.choice(best, 2, replace=False) for _ in range(queries)] if len(best) > 1 else []
    found = {"item": [(code,) for code in items.tolist()], "pair": [tuple(sorted(one.tolist())) for one in pairs]}
    lengths = np.diff(true.starts)
    for size in range(1, LARGEST + 1):
        chance = np.where(lengths >= size, true.weights, 0.0)
        chosen = draw.choice(len(chance), queries, p=chance / chance.sum()).tolist() if chance.any() else []
        held = [true.codes[true.starts[at] : true.starts[at + 1]] for at in chosen]
        found[f"rec{size}"] = [tuple(sorted(draw.choice(one, size, replace=False).tolist())) for one in held]
    return {name: asked for name, asked in found.items() if asked}


def evaluate(given: Measuring) -> Evaluated:
    """Questions by class and the most frequent items and item sets; or a file of queries."""
    asked, sets = given.workload, given.answers
    if asked.file is not None:
        return by_questions(given)
    if asked.kind != "equality":
        raise UsageError(f"workload {asked.kind!r}: a release of item sets takes a file, or queries by class")
    if not isinstance(sets, HasItems):
        raise TypeError(type(sets).__name__)
    if sets.labels != tuple(given.records.labels):
        raise UsageError("the specification's universe is not that of the release")
    return _evaluated(given, sets, holdings(given.records))


def _evaluated(given: Measuring, sets: HasItems, true: Holdings) -> Evaluated:
    key = seed_key(given.workload.seed)
    lengths = by_length(true.longest, given.workload.each, true.items, key.stream("workload", "items"))
    asked: dict[str, list[Asked]] = as_asked(true, given.workload.each, key.stream("workload", "records"))
    asked |= {str(share): queries for share, queries in lengths}
    truth = {one: float(true.weights[true.holding(one)].sum()) for part in asked.values() for one in part}
    best = true.top(max(TOPS))
    scores, extras = {}, {}
    for name in given.estimators:
        given.report.step(f"Asking for items, {name}")
        found = _scores(given, sets, asked, truth, name)
        scores[name] = Score()
        for one in found.values():
            scores[name].extend(one)
        classes = [
            {"length_share": share, **_named(found.pop(str(share)).figures(given.records.records))} for share in SHARES
        ]
        extras[name] = {
            **by_class(found, given.records.records),
            "classes": classes,
            "top": tops(best, sets, name),
            "top_items": top_items(given, sets, true, name),
        }
    return Evaluated(scores, {}, given.confidence, extras)


def _scores(
    given: Measuring, sets: HasItems, asked: dict[str, list[Asked]], truth: dict[Asked, float], estimator: str
) -> dict[str, Score]:
    """By class; equal questions are asked once."""
    said: dict[Asked, Estimate] = {}
    scores = {name: Score() for name in asked}
    for name, queries in asked.items():
        for one in queries:
            if not given.workload.wants(truth[one]):
                continue
            if one not in said:
                said[one] = sets.containing(one, estimator, given.confidence)
                given.report.update(100 * len(said) / len(truth))
            figures = said[one].estimate, said[one].low, said[one].high
            scores[name].add(truth[one], figures, Put(asking(given, sets, one), (), name))
    return scores


def asking(given: Measuring, sets: HasItems, codes: Asked) -> str:
    """SQL that counts the records with all of some items."""
    own = given.records.roles.sensitive[0]
    items = exp.array(
        *(equals(exp.null(), sets.labels[code], own.type.removesuffix("[]")).expression for code in codes)
    )
    return count_query(given.name, exp.func("list_has_all", column(own.name), items), [])


def _named(figures: dict[str, Any]) -> dict[str, Any]:
    """The error of a class by length under the name that it has there."""
    return {"mean_relative_error" if key == "mean_error" else key: value for key, value in figures.items()}


def tops(best: Sequence[tuple[Asked, float]], sets: HasItems, estimator: str) -> dict[str, float]:
    """Utility of the release's frequent item sets beside the source's, by how many are asked for."""
    code = {label: at for at, label in enumerate(sets.labels)}
    listed = [(tuple(code[one] for one in items), size) for items, size in sets.frequent(max(TOPS), estimator)]
    return {str(number): utility(best, listed, number) for number in TOPS}


def top_items(given: Measuring, sets: HasItems, true: Holdings, estimator: str) -> dict[str, dict[str, float | None]]:
    """Of the K most frequent items, where there are more: which part of these is among the K with the largest estimates
    (precision), and their mean error. Among equal estimates it is chance which come first.
    """
    smaller = [number for number in TOPS if number < true.items]
    if not smaller:
        return {}
    given.report.step(f"Looking for the most frequent items, {estimator}")
    codes = counted(given.report, range(true.items), true.items)
    answers = [sets.containing((code,), estimator, given.confidence).estimate for code in codes]
    estimate = np.array([0.0 if one is None else one for one in answers])
    chance = seed_key(given.workload.seed).stream("workload", "ties").permutation(true.items)
    ours, theirs = np.lexsort((chance, -estimate)), np.argsort(-true.singles, kind="stable")
    errors = np.abs(estimate - true.singles) / np.maximum(true.singles, SANITY * max(1, given.records.records))
    return {
        str(number): {
            "precision": len(np.intersect1d(ours[:number], theirs[:number])) / number,
            "mean_error": float(errors[theirs[:number]].mean()),
        }
        for number in smaller
    }


def holdings(source: Records) -> Holdings:
    """The source's sets and how many records have each."""
    contents = source.db.arrow(all_rows(temp("contents")))
    weights = source.db.arrow(fill("setvalued/weights", {"baskets": temp("baskets")}))["records"].to_numpy()
    starts = np.searchsorted(contents["basket"].to_numpy(), np.arange(len(weights) + 1))
    codes = contents["code"].to_numpy().astype(np.int64)
    return Holdings(starts, codes, weights.astype(np.float64), len(source.labels))
