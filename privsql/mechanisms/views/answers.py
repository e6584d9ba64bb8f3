"""Answer questions about item sets from noisy views (tables with noisy counts of patterns of a few items).

A pattern says for each of k items whether a record has it. Answers have exact standard errors, or bounds.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from math import floor
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.answers.sql.compiler import ITEMS, parse_set_query
from privsql.engine.sqlfiles import Holes, all_of, column, fill, table, temp_table
from privsql.errors import UsageError, closest
from privsql.mechanisms.dp.answers import PrivateAnswers, refuse_damaged
from privsql.mechanisms.views.item_counts import length_classes
from privsql.mechanisms.views.item_sets import repeat_sets
from privsql.mechanisms.views.model import ModelAnswer, count_items, half_width
from privsql.mechanisms.views.parameters import TINY_UNIVERSE, SetValued
from privsql.mechanisms.views.plan import declared_sets, named_first
from privsql.mechanisms.views.tables import UNIVERSE, PublishedViews, list_patterns, read_labels, read_views
from privsql.model.estimates import Estimate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from privsql.answers.sql.question import CountQuery, Lookups, Statement
    from privsql.engine.database import Relations
    from privsql.mechanisms.dp.noisy_tables import Clique, Ints, Reals
    from privsql.mechanisms.views.item_sets import WeightedSets
    from privsql.mechanisms.views.model import Counted

    Flags = NDArray[np.bool_]


# Conditions -----------------------------------------------------------------------------------------------------------
# A condition on lists of items becomes a table that says which patterns meet it.
#
# The engine finds the items that the condition names, and evaluates it on a list for each pattern of these. So AND, OR,
# NOT, NULL and the length of a list mean what they mean in the engine.

PARTS = (exp.ArrayContains, exp.ArrayContainsAll, exp.ArrayOverlaps, exp.Anonymous)
LENGTHS = (exp.Length, exp.ArraySize)
AT_ONCE = 1 << 16  # patterns that are evaluated in one query
LENGTH = "length"  # the column that replaces the length of a list


def find_named(db: Relations, condition: exp.Expr, universe: exp.Table) -> list[int]:
    """Return the codes of the items on which a condition on a list of items depends, so that only these are looked at.

    They are found by the engine: it tests which item, as the only one of a list, meets some part of the condition.

    Args:
        db: The engine that compares the condition with every item.
        condition: The condition.
        universe: The table of all items with their codes, which are their positions.

    Raises:
        UsageError: The condition depends on too many items.
    """
    overlaps: list[exp.Expr] = []
    for part in condition.find_all(*PARTS):
        if isinstance(part, exp.ArrayContainsAll | exp.Anonymous):  # its items are constants of a list
            wanted = part.expressions[1] if isinstance(part, exp.Anonymous) else part.expression
            overlaps.append(exp.ArrayOverlaps(this=column(ITEMS), expression=wanted.copy()))
        else:
            overlaps.append(part.copy())
    holes: Holes = {"universe": universe, "condition": exp.or_(exp.false(), *overlaps)}
    result = [int(row[0]) for row in db.rows(fill("duckdb/units", holes))]
    if len(result) > TINY_UNIVERSE:
        raise UsageError(f"a condition on more than {TINY_UNIVERSE} items is not supported")
    return result


def patterns_met(db: Relations, condition: exp.Expr, items: pa.Array, lengths: Ints | None = None) -> Flags:
    """Return which of the 2^k patterns of k items meet a condition (2^k,).

    A pattern says for each item whether a record has it. Its number in the result has a bit for each item; the first
    item has the highest bit.

    Args:
        db: The engine that evaluates the condition.
        condition: The condition on a list of items.
        items: The k items.
        lengths: The lengths of the list for which the condition is evaluated, if records may also have other items.
            The result then has a row for each length (lengths, 2^k). None if the list is the pattern itself.
    """
    if lengths is not None:
        condition = condition.transform(lambda node: column(LENGTH) if isinstance(node, LENGTHS) else node)
    known = np.zeros(1, dtype=np.int64) if lengths is None else lengths
    result = np.zeros(len(known) << len(items), dtype=bool)
    for first in range(0, len(result), AT_ONCE):
        row = np.arange(first, min(first + AT_ONCE, len(result)))
        lists = list_patterns(row & (1 << len(items)) - 1, items, np.arange(len(items))[::-1])
        rows = {"row": pa.array(row), ITEMS: lists, LENGTH: pa.array(known[row >> len(items)])}
        db.register_arrow("rows", pa.table(rows))
        met = db.rows(fill("duckdb/held", {"rows": temp_table("rows"), "condition": condition}))
        db.drop("rows")
        result[[row[0] for row in met]] = True
    return result if lengths is None else result.reshape(len(lengths), -1)


def telling_lengths(condition: exp.Expr, shortest: int, longest: int) -> Ints:
    """Return a few lengths of lists that show whether a condition on the length holds for all of a range, or for some.

    They are both ends of the range, and the lengths near each number in the condition, where its outcome can change.

    Args:
        condition: The condition.
        shortest: The first length of the range.
        longest: The last length of the range.
    """
    numbers = [float(one.name) for one in condition.find_all(exp.Literal) if one.is_number]
    near = [floor(number) + step for number in numbers for step in (-1, 0, 1, 2) if number < 2**53]
    return np.array(sorted({shortest, longest, *(one for one in near if shortest < one < longest)}), dtype=np.int64)


# Item sets ------------------------------------------------------------------------------------------------------------
# What all open releases of item sets have in common.


class ItemAnswers(PrivateAnswers):
    """A release of item sets, opened to answer count queries.

    It is the base class for noisy views and for partition trees, which publish single item sets with noisy counts. The
    code of an item is its position in the universe, the list of all possible items.
    """

    @cached_property
    def item_labels(self) -> tuple[str, ...]:
        """Return the texts of all possible items; the position of an item is its code."""
        return read_labels(self._db, table(UNIVERSE, self._database))

    def parse_sql(self, sql: str, lookups: Lookups) -> Statement:
        """Parse a count query.

        Raises:
            UsageError: It names an item outside of a public universe, about which the release says nothing.
        """
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
        """Return the item sets that most records contain.

        Args:
            number: How many item sets are returned.
            estimator: The name of the estimator, such as ``baseline``.

        Returns:
            The ascending codes of each item set, and its estimated number of records.
        """

    @abstractmethod
    def containing(self, codes: Sequence[int], estimator: str, confidence: float) -> Estimate:
        """Estimate the number of records that contain all of the given items."""

    def count_items(self, labels: Sequence[str], estimator: str, confidence: float) -> list[Estimate] | None:
        """Estimate the number of records with each of the items, given as texts, by a separate question for each."""
        code = {label: at for at, label in enumerate(self.item_labels)}
        return [self.containing([code[label]], estimator, confidence) for label in labels]

    def bound_errors(
        self, true: WeightedSets, questions: Mapping[str, Sequence[tuple[int, ...]]], doubt: float
    ) -> dict[str, int]:
        """Return a bound on the error of the answers to each class of questions, to compare measured errors with it.

        A question asks how many records have all of some items. This default has no bounds, as it knows no theorem.

        Args:
            true: The item sets of the source.
            questions: By the name of a class, its questions, each as the codes of its items.
            doubt: The probability with which a bound may fail.

        Returns:
            The bound, in records, by the name of the class; empty if there are none.
        """
        return {}

    def list_frequent(self, top: int, estimator: str) -> list[tuple[list[str], float]]:
        """Return the most frequent item sets, each with its estimated number of records."""
        return [([self.item_labels[code] for code in codes], number) for codes, number in self.top_sets(top, estimator)]


# Views ----------------------------------------------------------------------------------------------------------------
# Views answer any condition on items; errors are exact where one table has all items, and otherwise bounded.

BASELINE = (
    "estimate = sum of the least-squares counts of the patterns of items that meet the condition, made from all "
    "published tables; without bias and with its exact error where these tell it, else with bounds"
)
FORMULA = (
    "estimate = the same sum, its parities taken between those of least squares and those of the synthetic records, by "
    "how much is noise, and not further off than noise explains; the interval is that of least squares"
)
MOST_ITEMS = 22  # most items of a question, as all of their patterns are evaluated
MOST_OTHERS = 2  # most items without views of a question
MOST_WITH_LENGTHS = 10  # most items if lengths are compared, as each pattern is evaluated for every length
HAVING = np.array([0.0, 1.0])  # weights that select the records with an item
STRANGE = 0.025  # highest probability that an item set is listed that no record has


class ViewAnswers(ItemAnswers):
    """A release of noisy views (tables of which of a few items records have), opened to answer count queries.

    At the first question, its tables are read and a model of all records is fitted to them.
    """

    records = values = "privsql_sets"
    formulas: ClassVar[Mapping[str, str]] = {"baseline": BASELINE, "reconstructed": FORMULA}

    @cached_property
    def published_views(self) -> PublishedViews:
        """Return the tables of the release."""
        params = SetValued.model_validate(self._manifest.parameters)
        result = read_views(self._db, self._database, params, self._roles)
        with refuse_damaged():
            _ = result.codes, result.noisy_tables, result.counts, result.synthetic_sets
            self._declared = len(named_first(declared_sets(params, result.labels)))
        return result

    @cached_property
    def _measured_places(self) -> dict[int, int]:
        return {code: place for place, code in enumerate(self.published_views.codes.tolist())}

    def make_statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """Return the SQL that reads an answer's figures from the release, and the formula of the estimate in words."""
        return fill("setvalued/counted", {"marginals": table("privsql_marginals")}), self.formulas[estimator]

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """Estimate a count, as a single row; raise ``UsageError`` if the release has no figures for it."""
        condition = all_of([*query.filters["qi"], *query.filters["sa"]])
        views = self.published_views
        codes = self._order_codes(find_named(self._db, condition, table(UNIVERSE, self._database)))
        if condition.find(*LENGTHS) is not None:
            if views.counts is not None:
                return [self._estimate_lengths(codes, condition, estimator, confidence)]
            codes = views.codes.tolist()
        met = patterns_met(self._db, condition, views.items.take(pa.array(codes, pa.int64())))
        return [self._estimate_patterns(codes, met, estimator, confidence)]

    def _order_codes(self, codes: Sequence[int]) -> list[int]:
        """Return the codes in the order that ``_estimate_patterns`` needs: items of noisy tables, then the others.

        The items of the noisy tables come in the order of their columns, and the others by code.
        """
        return sorted(codes, key=lambda code: (self._measured_places.get(code, len(self._measured_places)), code))

    def containing(self, codes: Sequence[int], estimator: str, confidence: float) -> Estimate:
        """Estimate the number of records that contain all of the given items.

        If more than two items (``MOST_OTHERS``) have no noisy table, only the rarest two of these are used. The answer
        is then an upper limit, because no more records have all items than have some of them.

        Raises:
            UsageError: Too many items of the noisy tables are named.
        """
        ordered = self._order_codes(codes)
        measured = sum(code in self._measured_places for code in ordered)
        if measured > MOST_ITEMS - MOST_OTHERS:
            raise UsageError(f"a question of more than {MOST_ITEMS - MOST_OTHERS} items with views is not supported")
        others = ordered[measured:]
        if len(others) > MOST_OTHERS and (counts := self.published_views.counts) is not None:
            others = sorted(others, key=lambda code: (counts.estimates[code], code))[:MOST_OTHERS]
        meets = np.zeros(1 << (measured + len(others)), dtype=bool)
        meets[-1] = True
        return self._estimate_patterns([*ordered[:measured], *others], meets, estimator, confidence)

    def _estimate_lengths(
        self, codes: Sequence[int], condition: exp.Expr, estimator: str, confidence: float
    ) -> Estimate:
        """Estimate how many records meet a condition on their length (number of items), and perhaps on some items.

        Only releases of a large universe publish the lengths of records.
        """
        views = self.published_views
        if len(codes) > MOST_WITH_LENGTHS:
            raise UsageError(f"a condition on len and more than {MOST_WITH_LENGTHS} items is not supported")
        items, inside = views.items.take(pa.array(codes, pa.int64())), count_items(len(codes)).reshape(-1)
        least, most = [], []
        for shortest, longest in length_classes(len(views.labels)):
            lengths = telling_lengths(condition, shortest, longest)
            met = patterns_met(self._db, condition, items, lengths).astype(np.float64)
            others = lengths[:, None] - inside  # number of items that are not named
            possible = (others >= 0) & (others <= len(views.labels) - len(codes))
            least.append(np.where(possible, met, np.inf).min(axis=0))
            most.append(np.where(possible, met, -np.inf).max(axis=0))
        return self._estimate_between(codes, np.array(least).T, np.array(most).T, estimator, confidence)

    def _estimate_patterns(self, codes: Sequence[int], meets: Flags, estimator: str, confidence: float) -> Estimate:
        """Estimate the number of records whose pattern of k items (which of them a record has) meets a condition.

        Args:
            codes: The k items, those in noisy tables first.
            meets: Which of the 2^k patterns meet the condition (2^k,).
            estimator: The estimator.
            confidence: The confidence of the interval.
        """
        weights = meets.astype(np.float64)[:, None]
        return self._estimate_between(codes, weights, weights, estimator, confidence)

    def _estimate_between(
        self, codes: Sequence[int], least: Reals, most: Reals, estimator: str, confidence: float
    ) -> Estimate:
        """Estimate the records that meet a condition on which of k items they have (their pattern) and their length.

        The noisy tables alone answer a question about their own items (``ViewModel.answer``). Other answers have
        bounds, and an estimate as if lengths and items without a noisy table were independent of all other items.
        Lengths are known only by K classes, each a range of lengths.

        Args:
            codes: The k items, those in noisy tables first.
            least: For each pattern and class of lengths, 1 if every such record meets the condition, else 0: (2^k, K),
                or (2^k, 1) without lengths. It is infinite if no record can have that pattern and such a length.
            most: As ``least``, but 1 if any such record can meet the condition, and minus infinity if no record can
                have both.
            estimator: The estimator.
            confidence: The confidence of the interval.
        """
        views, model, doubt, leaning = (
            self.published_views, self.published_views.model, 1 - confidence, estimator != "baseline",
        )  # fmt: skip
        places = tuple(self._measured_places[code] for code in codes if code in self._measured_places)
        others, with_lengths = codes[len(places) :], least.shape[1] > 1
        columns = (*places, *(len(views.codes),) * with_lengths)
        shape = ((2,) * len(places), (2,) * len(others), (least.shape[1],) * with_lengths)
        order = [*range(len(places)), *range(len(codes), len(codes) + with_lengths), *range(len(places), len(codes))]
        least, most = (one.reshape(sum(shape, ())).transpose(order) for one in (least, most))
        counted = self._usable_counts(codes[: len(places)], doubt)
        if not others and not (with_lengths and places) and np.array_equal(least, most):
            found = model.answer(columns, least, doubt, leaning=leaning and not with_lengths, counted=counted)
        elif len(codes) == len(others) == 1 and not with_lengths:
            found = model.answer_by_count(least, self._count_of(others[0]), doubt)
        else:
            about = counted | {len(columns) + axis: self._count_of(code) for axis, code in enumerate(others)}
            found = self._bound_between(columns, others, least, most, doubt, about, leaning=leaning)
        estimate = found.estimate if estimator == "baseline" else max(found.estimate, 0.0)
        return Estimate((), estimate, found.error, min(found.low, estimate), max(found.high, estimate, 0.0))

    def _bound_between(
        self, columns: Clique, others: Sequence[int], least: Reals, most: Reals, doubt: float, counted: Counted,
        *, leaning: bool,
    ) -> ModelAnswer:  # fmt: skip
        """Estimate how many records meet a condition on items and lengths that noisy tables alone can't answer.

        A weight says whether a record with given items and a given length meets the condition: 1 if it does, else 0. If
        that is not certain, the weight lies between ``least`` and ``most``.

        Two pairs of bounds are combined. ``ViewModel.bound_between`` gives the first, from each noisy table and count.
        The second starts from the records with none of the ``others``, the items without a noisy table. At most as many
        records have one of these items as their counts add up to. The estimate takes lengths and ``others`` as
        independent of all other items.

        Args:
            columns: The columns of the items in noisy tables; a last one stands for the lengths, if they are asked for.
            others: The codes of the other items.
            least: The least weight of a record, with one axis for each of ``columns`` and then of ``others``. It is
                infinite where no record can have these items and this length.
            most: The greatest weight, in the same way, but minus infinity there.
            doubt: The probability with which the truth may lie outside of the interval.
            counted: For some axes, by position, another noisy count of records with that item, and its variance.
            leaning: Whether the estimate is drawn towards the synthetic population.
        """
        model, total = self.published_views.model, max(self.published_views.model.squares.total, 1.0)
        part = doubt / 3 if others else doubt
        low, high = model.bound_between((*columns, *(None,) * len(others)), least, most, part, counted)
        weights = (np.where(np.isfinite(least), least, 0.0) + np.where(np.isfinite(most), most, 0.0)) / 2
        possible = np.isfinite(least).astype(np.float64)
        if others:
            without: tuple[Any, ...] = (..., *(0,) * len(others))
            inside = {axis: one for axis, one in counted.items() if axis < len(columns)}
            alone = model.bound_between(columns, least[without], most[without], part, inside)
            ends = [model.answer_by_count(HAVING, self._count_of(code), part / len(others)).high for code in others]
            low = max(low, alone[0] - sum(ends))
            high = max(low, min(high, alone[1] + sum(ends)))
            for code in reversed(others):
                share = min(max(self._count_of(code)[0] / total, 0.0), 1.0)
                weights, possible = (one @ np.array([1 - share, share]) for one in (weights, possible))
        if columns and columns[-1] == len(self.published_views.codes):
            lengths = np.maximum(model.squares.estimate_table(columns[-1:]), 0.0)
            among = np.maximum(possible @ lengths, 1e-9)
            mean = np.asarray(weights @ lengths) / among
            if len(columns) == 1:
                return ModelAnswer(min(max(float(mean) * total, low), high), None, low, high)
            columns, weights = columns[:-1], mean
        estimate = model.answer(columns, weights, doubt, leaning=leaning).estimate
        return ModelAnswer(min(max(estimate, low), high), None, low, high)

    def _count_of(self, code: int) -> tuple[float, float]:
        """Return the published number of records with an item, and its variance."""
        counts = self.published_views.counts
        if counts is None:
            raise TypeError("the items of a small universe all have views")
        return float(counts.estimates[code]), float(counts.variances[code])

    def _usable_counts(self, codes: Sequence[int], doubt: float) -> dict[int, tuple[float, float]]:
        """Return noisy counts of single items that may improve an answer from the noisy tables.

        An item has got noisy tables because the publisher declared it, or because its count is large, perhaps by noise
        alone. In the second case, its count is used only if it clearly exceeds the counts of all items without tables.
        Noise explains such a difference no more often than the interval may miss the truth.

        Args:
            codes: The codes of the items of the question.
            doubt: The probability with which the interval may miss the truth.

        Returns:
            For usable items, by their position in ``codes``, the count and its variance.
        """
        counts = self.published_views.counts
        if counts is None:
            return {}
        result = {}
        for axis, code in enumerate(codes):
            count, variance = self._count_of(code)
            far = count - self._largest_unchosen
            if self._measured_places[code] < self._declared or far > half_width(variance**0.5, 1.0, doubt / 2):
                result[axis] = count, variance
        return result

    @cached_property
    def _largest_unchosen(self) -> float:
        """Return the largest published count of an item without a noisy table; -inf if there is none."""
        views = self.published_views
        if views.counts is None or len(views.codes) == len(views.labels):
            return -np.inf
        return float(np.delete(views.counts.estimates, views.codes).max())

    # Frequent item sets ---

    def top_sets(self, number: int, estimator: str) -> list[tuple[tuple[int, ...], float]]:
        """Return the ``number`` item sets that most records contain: ascending codes, and the estimated records.

        A set is listed if the noisy tables hold it and its number of records is above 0 at 95 % confidence. Single
        items outside of the tables are listed if their counts are above 0 at that confidence, for all of them together.
        """
        from scipy.special import ndtri

        self.require_estimator(estimator)
        views = self.published_views
        model, codes, counts = views.model, views.codes, views.counts
        leaning = estimator != "baseline"
        estimated, counted, variance = (one.reshape(-1) for one in model.superset_counts(leaning=leaning))
        occurs = counted > np.sqrt(variance) * -ndtri(STRANGE)
        occurs[0] = False
        if counts is not None:
            for place, code in enumerate(codes.tolist()):
                one = self.containing([code], estimator, 1 - 2 * STRANGE)
                at = 1 << (len(codes) - 1 - place)
                estimated[at], occurs[at] = one.estimate, bool(one.low)
        listed = np.flatnonzero(occurs & (estimated > 0))
        sizes = count_items(len(codes)).reshape(-1)
        order = np.lexsort((listed, sizes[listed], -estimated[listed]))[:number]
        places = np.array(np.unravel_index(listed[order], (2,) * len(codes))).T
        found = [(tuple(sorted(codes[one > 0].tolist())), float(size))
                 for one, size in zip(places, estimated[listed[order]], strict=True)]  # fmt: skip
        if counts is not None:
            others = counts.largest_items(number, codes.tolist())
            doubt = STRANGE / len(views.labels)
            widths = [half_width(float(counts.variances[code]) ** 0.5, 1.0, doubt) for code in others]
            sure = [code for code, width in zip(others, widths, strict=True) if counts.estimates[code] > width]
            found += [((code,), float(counts.estimates[code])) for code in sure]
        return sorted(found, key=lambda one: (-one[1], len(one[0]), one[0]))[:number]

    def make_synthetic(self) -> pa.Table:
        """Return synthetic records that fit the release, as rows (record, item) in order; empty records have no row."""
        rows = self.published_views.rows["sets"]
        return repeat_sets(rows["items"], rows["weight"])
