"""Answer conditions on item sets from noisy views, with exact errors or bounds."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.answers.sql.compiler import ITEMS, parse_set_query
from privsql.engine.sqlfiles import Holes, all_of, column, fill, table, temp_table
from privsql.errors import UsageError, closest
from privsql.mechanisms.dp.answers import PrivateAnswers, refuse_damaged
from privsql.mechanisms.dp.parameters import find_law
from privsql.mechanisms.views.item_sets import repeat_sets
from privsql.mechanisms.views.model import count_items
from privsql.mechanisms.views.parameters import TINY_UNIVERSE, SetValued
from privsql.mechanisms.views.plan import most_excess
from privsql.mechanisms.views.tables import UNIVERSE, PublishedViews, list_patterns, read_labels, read_views
from privsql.model.estimates import Estimate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from privsql.answers.sql.question import CountQuery, Lookups, Statement
    from privsql.engine.database import Relations
    from privsql.mechanisms.views.item_sets import WeightedSets

    Flags = NDArray[np.bool_]


# Conditions -----------------------------------------------------------------------------------------------------------
# An analyst's condition on lists of items as a table over patterns.
#
# The engine says which items a condition names, and which patterns of these meet it: it looks at the list of each. What
# AND, OR, NOT, NULL and the length of a list come to is the engine's, too.

PARTS = (exp.ArrayContains, exp.ArrayContainsAll, exp.ArrayOverlaps, exp.Anonymous)
LENGTHS = (exp.Length, exp.ArraySize)
AT_ONCE = 1 << 16  # patterns whose lists are made together


def find_named(db: Relations, condition: exp.Expr, universe: exp.Table) -> list[int]:
    """Return the codes of the items that a condition names; ``UsageError`` for too many."""
    overlaps: list[exp.Expr] = []
    for part in condition.find_all(*PARTS):
        if isinstance(part, exp.ArrayContainsAll | exp.Anonymous):  # asked in whole, named one by one
            wanted = part.expressions[1] if isinstance(part, exp.Anonymous) else part.expression
            overlaps.append(exp.ArrayOverlaps(this=column(ITEMS), expression=wanted.copy()))
        else:
            overlaps.append(part.copy())
    holes: Holes = {"universe": universe, "condition": exp.or_(exp.false(), *overlaps)}
    result = [int(row[0]) for row in db.rows(fill("duckdb/units", holes))]
    if len(result) > TINY_UNIVERSE:
        raise UsageError(f"a condition on more than {TINY_UNIVERSE} items is not supported")
    return result


def patterns_met(db: Relations, condition: exp.Expr, items: pa.Array) -> Flags:
    """Return which patterns of some k items meet a condition on a list of them (2^k,), in row-major order."""
    result = np.zeros(1 << len(items), dtype=bool)
    for first in range(0, len(result), AT_ONCE):
        pattern = np.arange(first, min(first + AT_ONCE, len(result)))
        lists = list_patterns(pattern, items, np.arange(len(items))[::-1])
        db.register_arrow("rows", pa.table({"row": pa.array(pattern), ITEMS: lists}))
        met = db.rows(fill("duckdb/held", {"rows": temp_table("rows"), "condition": condition}))
        db.drop("rows")
        result[[row[0] for row in met]] = True
    return result


# Item sets ------------------------------------------------------------------------------------------------------------
# What all open releases of item sets have in common.


class ItemAnswers(PrivateAnswers):
    """An open release that answers count queries over items."""

    @cached_property
    def item_labels(self) -> tuple[str, ...]:
        """Return the texts of the items, in the order of the universe."""
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
        """Return the item sets with most records: their codes, ascending, and estimates."""

    @abstractmethod
    def containing(self, codes: Sequence[int], estimator: str, confidence: float) -> Estimate:
        """Return the number of records that contain all of some items, as ``list_has_all`` gets it."""

    def bound_errors(
        self, true: WeightedSets, questions: Mapping[str, Sequence[tuple[int, ...]]], doubt: float
    ) -> dict[str, int]:
        """Return a bound of the error of each class of questions, where a theorem has one whatever the data."""
        return {}

    def list_frequent(self, top: int, estimator: str) -> list[tuple[list[str], float]]:
        """Return the most frequent item sets, each with its estimated number of records."""
        return [([self.item_labels[code] for code in codes], number) for codes, number in self.top_sets(top, estimator)]


# Views ----------------------------------------------------------------------------------------------------------------
# Answers from a release of views: any condition on the measured items, with exact errors or honest bounds.

BASELINE = (
    "estimate = sum of the least-squares counts of the patterns of items that meet the condition, made from all "
    "published tables; without bias and with its exact error where these tell it, else with bounds"
)
FORMULA = (
    "estimate = the same sum, its parities taken between those of least squares and those of the synthetic records, by "
    "how much is noise, and not further off than noise explains; the interval is that of least squares"
)
MOST_ITEMS = 22  # of a question: each of their patterns is looked at
HAVING = np.array([0.0, 1.0])  # an item
STRANGE = 0.025  # chance at most, of noise alone, that an item set is listed which nobody has


class ViewAnswers(ItemAnswers):
    """An open release that answers count queries over items; it is read and fitted once."""

    records = values = "privsql_sets"
    formulas: ClassVar[Mapping[str, str]] = {"baseline": BASELINE, "reconstructed": FORMULA}

    @cached_property
    def published_views(self) -> PublishedViews:
        """Return the release's tables as arrays."""
        law = find_law(SetValued.model_validate(self._manifest.parameters))
        result = read_views(self._db, self._database, law, self._roles)
        with refuse_damaged():
            _ = result.choice, result.noisy_tables, result.synthetic_sets
        return result

    @cached_property
    def _measured_places(self) -> dict[int, int]:
        return {code: place for place, code in enumerate(self.published_views.choice.codes.tolist())}

    def make_statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """Return the SQL that reads the release for an answer, and the formula in words."""
        return fill("setvalued/counted", {"marginals": table("privsql_marginals")}), self.formulas[estimator]

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """Return the answer, one row; ``UsageError`` for what was not measured."""
        condition = all_of([*query.filters["qi"], *query.filters["sa"]])
        views = self.published_views
        codes = self._order_codes(find_named(self._db, condition, table(UNIVERSE, self._database)))
        if condition.find(*LENGTHS) is not None:
            codes, universe = views.choice.codes.tolist(), len(views.labels)
            if len(codes) < universe:
                raise UsageError(
                    f"len({self._roles.sensitive[0].name}) can't be answered: {len(codes)} of {universe:,} items were "
                    "measured, and the release does not say how many other items a record has"
                )
        met = patterns_met(self._db, condition, views.items.take(pa.array(codes, pa.int64())))
        return [self._estimate_patterns(codes, met, estimator, confidence)]

    def _order_codes(self, codes: Sequence[int]) -> list[int]:
        """Return the measured ones by their places, then the others."""
        return sorted(codes, key=lambda code: (self._measured_places.get(code, len(self._measured_places)), code))

    def containing(self, codes: Sequence[int], estimator: str, confidence: float) -> Estimate:
        """Return the number of records that contain all of some items.

        Of those that were not measured one is enough: no more records have all of them than have that one.
        """
        ordered = self._order_codes(codes)
        needed = ordered[: sum(code in self._measured_places for code in ordered) + 1]
        if len(needed) > MOST_ITEMS:
            raise UsageError(f"a question of more than {MOST_ITEMS - 1} items that were measured is not supported")
        meets = np.zeros(1 << len(needed), dtype=bool)
        meets[-1] = True
        return self._estimate_patterns(needed, meets, estimator, confidence)

    def _estimate_patterns(self, codes: Sequence[int], meets: Flags, estimator: str, confidence: float) -> Estimate:
        """Estimate the records whose patterns of ``codes``, the measured ones first, meet a condition (2^k,).

        Of items that were not measured there are bounds, each missed with a chance of a third of the doubt. A record
        without any of these meets the condition as ``whole[.., 0]`` has it. At most ``outside`` records have one.
        """
        chosen = tuple(self._measured_places[code] for code in codes if code in self._measured_places)
        others, doubt, model = len(codes) - len(chosen), 1 - confidence, self.published_views.model
        whole = meets.reshape((*(2,) * len(chosen), 1 << others)).astype(np.float64)
        result = model.answer(chosen, whole[..., 0], doubt, leaning=estimator != "baseline")
        estimate, error, low, high = result.estimate, result.error, result.low, result.high
        if others:
            error, outside = None, others * self._most_unmeasured(doubt / 3)
            low, high = model.bound_between(chosen, whole.min(axis=-1), whole.max(axis=-1), doubt / 3)
            least, most = model.bound_between(chosen, whole[..., 0], whole[..., 0], doubt / 3)
            low = max(low, least - outside)
            high = max(low, min(high, most + outside))
            estimate = min(max(estimate, low), high)
        estimate = estimate if estimator == "baseline" else max(estimate, 0.0)
        return Estimate((), estimate, error, min(low, estimate), max(high, estimate, 0.0))

    def _most_unmeasured(self, doubt: float) -> float:
        """Return how many records have any one item that was not measured at most, but for a chance of ``doubt``."""
        held = self.published_views
        last = held.choice.budgets[-1]
        if last is None:
            return np.inf
        _, high = held.model.bound_between((len(held.choice.codes) - 1,), HAVING, HAVING, doubt)
        return high + most_excess(len(held.labels), held.law.choice_epsilon(last), doubt / 2)

    # Frequent item sets ---

    def top_sets(self, number: int, estimator: str) -> list[tuple[tuple[int, ...], float]]:
        """Return the item sets with most records: their codes, ascending, and estimates.

        A set is listed if a table tells its number of records, and that is above 0 at 95 % confidence.
        """
        from scipy.special import ndtri

        self.require_estimator(estimator)
        model, codes = self.published_views.model, self.published_views.choice.codes
        leaning = estimator != "baseline"
        estimated, counted, variance = (one.reshape(-1) for one in model.superset_counts(leaning=leaning))
        occurs = counted > np.sqrt(variance) * -ndtri(STRANGE)
        occurs[0] = False
        listed = np.flatnonzero(occurs & (estimated > 0))
        sizes = count_items(len(codes)).reshape(-1)
        order = np.lexsort((listed, sizes[listed], -estimated[listed]))[:number]
        places = np.array(np.unravel_index(listed[order], (2,) * len(codes))).T
        chosen = [tuple(sorted(codes[one > 0].tolist())) for one in places]
        return list(zip(chosen, estimated[listed[order]].tolist(), strict=True))

    def make_synthetic(self) -> pa.Table:
        """Return synthetic records that fit the release, (record, item) in order; the empty have none."""
        rows = self.published_views.rows["sets"]
        return repeat_sets(rows["items"], rows["weight"])
