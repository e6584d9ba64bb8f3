"""Answer from item sets, measure how good a release of them is, and compare it with its source, by any algorithm."""

from __future__ import annotations

import heapq
from abc import abstractmethod
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from math import ceil, log
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sqlglot import exp

from privsql.answers import accuracy
from privsql.answers.sql.compiler import parse_set_query
from privsql.engine.database import report_steps
from privsql.engine.sqlfiles import (
    DIALECT,
    Holes,
    alias_as,
    all_rows,
    column,
    fill,
    quoted_identifier,
    table,
    temp_table,
)
from privsql.errors import UsageError, closest
from privsql.keyed_random import seed_key
from privsql.mechanisms.dp import mechanism as private
from privsql.model.arrays import round_copies

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from fractions import Fraction

    from privsql.answers.accuracy import EvaluationContext
    from privsql.answers.sql.question import Lookups, Statement
    from privsql.engine.database import Relations
    from privsql.engine.sqlfiles import Roles
    from privsql.mechanisms.dp.noisy_tables import Ints
    from privsql.mechanisms.views.parameters import SetValued
    from privsql.model.checks import Check, CheckedRelease
    from privsql.model.estimates import Estimate
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

# Holdings -------------------------------------------------------------------------------------------------------------
# Item sets with weights as bits: which of them hold some items, and which sets of items weigh most.

Reals = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class WeightedSets:
    """N sets: the items of set s are ``codes[starts[s]:starts[s+1]]``, of a universe of ``items``; ``weights`` (N,)."""

    starts: Ints
    codes: Ints
    weights: Reals
    items: int

    @staticmethod
    def from_lists(lists: pa.ChunkedArray, weights: pa.ChunkedArray, items: pa.Array) -> WeightedSets:
        """Lists of some items with their weights; ``ValueError`` where one holds another item, or one twice."""
        values = lists.combine_chunks()
        codes = pc.index_in(values.flatten(), value_set=items)
        if codes.null_count or values.null_count or weights.null_count:
            raise ValueError("a set holds an item that is not in the universe or was not measured, or has no weight")
        starts = np.concatenate(([0], np.cumsum(pc.list_value_length(values).to_numpy().astype(np.int64))))
        numbers = weights.to_numpy().astype(np.float64)
        result = WeightedSets(starts, codes.to_numpy().astype(np.int64), numbers, len(items))
        if len(np.unique(result.owners * result.items + result.codes)) < len(codes):
            raise ValueError("a set holds an item twice")
        return result

    @property
    def longest_set(self) -> int:
        """Items of the largest set."""
        return int(np.diff(self.starts).max(initial=0))

    def list_sets(self) -> list[tuple[int, ...]]:
        """Return the codes of every set, ascending."""
        codes = self.codes.tolist()
        return [tuple(sorted(codes[start:end])) for start, end in pairwise(self.starts.tolist())]

    @cached_property
    def owners(self) -> Ints:
        """The set that holds each of ``codes``."""
        return np.repeat(np.arange(len(self.weights), dtype=np.int64), np.diff(self.starts))

    @cached_property
    def item_weights(self) -> Reals:
        """Weight of every item alone, (items,)."""
        return self._by_item(self.weights, self.codes >= 0)

    @cached_property
    def _sets_by_item(self) -> NDArray[np.uint8]:
        """For every item the sets that hold it, as bits: (items, N/8)."""
        result = np.zeros((self.items, (len(self.weights) + 7) // 8), dtype=np.uint8)
        owner = self.owners
        np.bitwise_or.at(result, (self.codes, owner >> 3), (128 >> (owner & 7)).astype(np.uint8))
        return result

    def sets_with_all(self, codes: Sequence[int]) -> Flags:
        """Which sets hold all of some items, (N,)."""
        packed = np.bitwise_and.reduce(self._sets_by_item[list(codes)], axis=0)
        return np.unpackbits(packed, count=len(self.weights)).astype(bool)

    def count_patterns(self, chosen: Ints) -> Ints:
        """The records with every pattern of some items, which has a bit for each."""
        place = np.full(self.items, -1, dtype=np.int64)
        place[chosen] = np.arange(len(chosen))
        item_places = place[self.codes]
        inside = item_places >= 0
        bits = np.left_shift(np.int64(1), len(chosen) - 1 - item_places[inside])
        pattern = np.bincount(self.owners[inside], weights=bits, minlength=len(self.weights)).astype(np.int64)
        return np.bincount(pattern, self.weights, 1 << len(chosen)).astype(np.int64).reshape((2,) * len(chosen))

    def top_sets(self, number: int) -> list[tuple[tuple[int, ...], float]]:
        """The ``number`` item sets with most weight, each with its weight; ties by size and then by codes.

        Best first: a set is extended by items after its last one, all of whose weights are had in one pass over the
        sets that hold it. Where all weights are positive no extension weighs more than what it extends, so what comes
        out is exact; negative weights, from noise, may put a set somewhat later.
        """
        alone = enumerate(self.item_weights.tolist())
        queue: list[tuple[float, int, tuple[int, ...]]] = [
            (-weight, 1, (code,)) for code, weight in alone if weight > 0
        ]
        heapq.heapify(queue)
        result: list[tuple[tuple[int, ...], float]] = []
        while queue and len(result) < number:
            weight, size, chosen = heapq.heappop(queue)
            result.append((chosen, -weight))
            inside = self.sets_with_all(chosen)[self.owners] & (self.codes > chosen[-1])
            weights = self._by_item(self.weights, inside)
            for code in np.flatnonzero(weights > 0).tolist():
                heapq.heappush(queue, (-float(weights[code]), size + 1, (*chosen, code)))
        return result

    def _by_item(self, weights: Reals, inside: Flags) -> Reals:
        """Weights by item, over some of the pairs of set and item, (items,)."""
        result = np.bincount(self.codes[inside], weights=weights[self.owners[inside]], minlength=self.items)
        return result.astype(np.float64)


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


def evaluate_answers(context: EvaluationContext) -> accuracy.Evaluated:
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


def read_sets(source: Records) -> WeightedSets:
    """The source's sets and how many records have each."""
    source.sort_records()
    contents = source.db.arrow(all_rows(temp_table("contents")))
    weights = source.db.arrow(fill("setvalued/weights", {"baskets": temp_table("baskets")}))["records"].to_numpy()
    starts = np.searchsorted(contents["basket"].to_numpy(), np.arange(len(weights) + 1))
    codes = contents["code"].to_numpy().astype(np.int64)
    return WeightedSets(starts, codes, weights.astype(np.float64), len(source.labels))


# Checks against the source --------------------------------------------------------------------------------------------
# A release of item sets against its source, whatever algorithm made it.


def set_source_checks(release: CheckedRelease[SetValued, Any], source: Records) -> list[Check]:
    """Return the checks against the source: of its records a private release tells nothing that could be checked."""

    def compare_universe(_: CheckedRelease[SetValued, Any]) -> list[str]:
        stated = read_labels(release.db, release.view("universe"))
        wrong = stated != tuple(source.labels)
        return [f"stated {len(stated)} items, the source has {len(source.labels)}"] if wrong else []

    return release.list_checks({"the universe is the specification's": compare_universe})


# Names ----------------------------------------------------------------------------------------------------------------
# Published sets have the publisher's name, in the release's table as in its own view; columns of privsql's give way.

UNIVERSE = "privsql_universe"


def read_labels(db: Relations, universe: exp.Table) -> tuple[str, ...]:
    """Text of the items of a release, in the order of its universe."""
    holes: Holes = {"domain": universe, "labels": [exp.cast(column("item"), "VARCHAR")]}
    return tuple(str(row[0]) for row in db.rows(fill("core/labels", holes)))


def name_columns(roles: Roles, *others: str) -> Holes:
    """Holes of a table of sets: the published name of the sets, and of privsql's own columns."""
    return {"items": quoted_identifier(roles.sensitive[0].name), **roles.by_sa.alias_holes(*others)}


def weighted_sets(manifest: Manifest, name: str, count: str) -> exp.Query:
    """The release's own view: the sets of table ``name``, with its column ``count`` as weight."""
    roles = manifest.roles
    weight = alias_as(roles.by_sa.as_column(count, "sets"), roles.by_sa.column_name("weight"))
    holes: Holes = {"sets": table(name), "items": column(roles.sensitive[0].name, "sets"), "weight": weight}
    return fill("setvalued/weighted", holes)


# Answers --------------------------------------------------------------------------------------------------------------
# What all open releases of item sets have in common.


class ItemAnswers(private.PrivateAnswers):
    """An open release that answers count queries over items."""

    @cached_property
    def item_labels(self) -> tuple[str, ...]:
        """Text of the items, in the order of the universe."""
        return read_labels(self._db, table(UNIVERSE, self._database))

    def parse_sql(self, sql: str, lookups: Lookups) -> Statement:
        """Return a count query; ``UsageError`` for an item outside a public universe: it was dropped, not counted."""
        statement = parse_set_query(sql, self._roles, self._manifest.name)
        if not self._manifest.facts["universe_is_public"]:
            return statement
        parts = (statement.scope.where, *(call.among for call in statement.calls))
        for node in (node for part in parts if part is not None for node in part.find_all(exp.Literal)):
            holder = node.find_ancestor(exp.ArrayContains, exp.ArrayContainsAll, exp.ArrayOverlaps, exp.Anonymous)
            sign = "-" if isinstance(node.parent, exp.Neg) else ""
            if holder is None or f"{sign}{node.name}" in self.item_labels:
                continue
            meant = closest(node.name, self.item_labels)
            hint = "" if meant is None else f"; did you mean {meant!r}?"
            raise UsageError(
                f"item {sign}{node.sql()} is not in the universe of this release, which says nothing about it{hint}"
            )
        return statement

    @abstractmethod
    def top_sets(self, number: int, estimator: str) -> list[tuple[tuple[int, ...], float]]:
        """The item sets with most records: their codes, ascending, and estimates."""

    def list_frequent(self, top: int, estimator: str) -> list[tuple[list[str], float]]:
        """The most frequent item sets, each with its estimated number of records."""
        return [([self.item_labels[code] for code in codes], number) for codes, number in self.top_sets(top, estimator)]


def repeat_sets(lists: pa.ChunkedArray, weights: pa.ChunkedArray) -> pa.Table:
    """Sets as records, each as often as it weighs: (record, item) in order; the empty have none."""
    copies = np.repeat(np.arange(len(lists)), round_copies(weights.to_numpy()))
    repeated = lists.combine_chunks().take(pa.array(copies))
    return pa.table({"record": repeated.value_parent_indices().cast(pa.int64()), "item": repeated.flatten()})
