"""Answer conditions on item sets from noisy views, with exact errors or bounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.answers.parser import ITEMS
from privsql.engine.sqlfiles import alias_as, all_of, column, fill, table, temp_table
from privsql.errors import UsageError
from privsql.mechanisms import private
from privsql.mechanisms.private import refuse_damaged
from privsql.mechanisms.setvalued import views_model
from privsql.mechanisms.setvalued.parameters import TINY_UNIVERSE, SetValued
from privsql.mechanisms.setvalued.questions import parse_counted
from privsql.mechanisms.setvalued.views import most_excess, read_views
from privsql.mechanisms.setvalued.views_model import count_items
from privsql.model.manifest import Estimate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from privsql.answers.aggregates import Statement
    from privsql.answers.names import Lookups
    from privsql.answers.question import CountQuery
    from privsql.engine.database import Relations
    from privsql.mechanisms.dp.noisy_tables import Clique, Ints, Reals
    from privsql.mechanisms.setvalued.views import PublishedViews

    Flags = NDArray[np.bool_]

# Conditions -----------------------------------------------------------------------------------------------------------
# An analyst's condition on lists of items as a table over patterns.
#
# The engine says what each part of the condition means: which items it is about, and what it is of the list of no item
# and of the list of all. ``list_contains`` and ``list_has_any`` turn with the first of their items that is in a list,
# ``list_has_all`` with the last one. Then the engine evaluates the condition once for every combination of its parts,
# so what AND, OR, NOT and NULL come to is the engine's, too.

PARTS = (exp.ArrayContains, exp.ArrayContainsAll, exp.ArrayOverlaps, exp.Anonymous)
LENGTHS = (exp.Length, exp.ArraySize)
MOST_PARTS = 40
LENGTH = "length"


@dataclass(frozen=True)
class ConditionPart:
    """A part of a condition: the codes of the items that it is about, whether it needs ``all`` of them, what it is
    where it is met (of the list of all items), and what it is elsewhere (of the empty list); None for NULL.
    """

    codes: frozenset[int]
    all: bool
    met: bool | None
    unmet: bool | None

    def is_met_in(self, present: Mapping[int, Flags], patterns: int) -> Flags:
        """Return the patterns that meet the condition; ``present``: by code, the patterns that hold the item."""
        result = np.full(patterns, self.all and bool(self.codes))
        for code in sorted(self.codes):
            result = result & present[code] if self.all else result | present[code]
        return result

    def truth_values(self, met: Flags) -> pa.Array:
        """Return what it is, where it is met and elsewhere."""
        result = [self.met if one else self.unmet for one in met.tolist()]
        return pa.array(result, pa.bool_())


@dataclass(frozen=True)
class ItemCondition:
    """``tree``: over columns p_0, p_1, .. for the parts, and ``LENGTH`` for the number of items."""

    tree: exp.Expr
    parts: tuple[ConditionPart, ...]
    counts: bool

    @property
    def item_codes(self) -> tuple[int, ...]:
        """The items that it is about, ascending."""
        return tuple(sorted(frozenset[int]().union(*(part.codes for part in self.parts))))

    def patterns_met(self, db: Relations, codes: Sequence[int], length: Ints | None = None) -> Flags:
        """Return which patterns of the items ``codes`` meet the condition (2^k,), in row-major order.

        ``length``: how many items the records of each pattern have, where it ``counts`` them.
        """
        number = 1 << len(codes)
        rows = np.arange(number)
        present = {code: rows >> (len(codes) - 1 - i) & 1 == 1 for i, code in enumerate(codes)}
        key = np.zeros(number, dtype=np.int64) if length is None else length.astype(np.int64)
        for part in self.parts:
            key = key << 1 | part.is_met_in(present, number)
        different, which = np.unique(key, return_inverse=True)
        columns: dict[str, pa.Array] = {"row": pa.array(np.arange(len(different)))}
        for i, part in enumerate(reversed(self.parts)):
            columns[f"p_{len(self.parts) - 1 - i}"] = part.truth_values(different >> i & 1 == 1)
        columns[LENGTH] = pa.array(different >> len(self.parts), pa.int64())
        db.register_arrow("rows", pa.table(columns))
        held = db.rows(fill("setvalued/held", {"rows": temp_table("rows"), "condition": self.tree}))
        db.drop("rows")
        true = np.zeros(len(different), dtype=bool)
        true[[row[0] for row in held]] = True
        return np.asarray(true[which.reshape(-1)])


def read_condition(db: Relations, condition: exp.Expr, universe: exp.Table) -> ItemCondition:
    """A condition that ``parse_sets`` let through; ``UsageError`` if it has too many parts."""
    tree = exp.paren(condition.copy())
    atoms: list[exp.Expr] = []
    for node in list(tree.find_all(*PARTS)):
        same = next((i for i, one in enumerate(atoms) if one == node), len(atoms))
        atoms += [node.copy()] if same == len(atoms) else []
        node.replace(column(f"p_{same}"))
    lengths = list(tree.find_all(*LENGTHS))
    for node in lengths:
        node.replace(column(LENGTH))
    if len(atoms) > MOST_PARTS:
        raise UsageError(f"a condition of more than {MOST_PARTS} different parts is not supported")
    return ItemCondition(tree, tuple(_read_parts(db, atoms, universe)), bool(lengths))


def _read_parts(db: Relations, atoms: Sequence[exp.Expr], universe: exp.Table) -> list[ConditionPart]:
    if not atoms:
        return []
    single = [alias_as(_overlap_condition(one), f"p_{i}") for i, one in enumerate(atoms)]
    units = db.arrow(fill("duckdb/units", {"universe": universe, "conditions": single}))
    plain = [alias_as(one, f"p_{i}") for i, one in enumerate(atoms)]
    unmet, met = (row[1:] for row in db.rows(fill("duckdb/extremes", {"universe": universe, "conditions": plain})))
    result = []
    for i, one in enumerate(atoms):
        about = frozenset(units.filter(pc.field(f"p_{i}"))["code"].to_pylist())
        result.append(ConditionPart(about, _needs_all(one), met[i], unmet[i]))
        if len(about) > TINY_UNIVERSE:
            raise UsageError(f"a condition on more than {TINY_UNIVERSE} items is not supported")
    return result


def _needs_all(part: exp.Expr) -> bool:
    return isinstance(part, exp.ArrayContainsAll | exp.Anonymous)


def _overlap_condition(part: exp.Expr) -> exp.Expr:
    """Return whether any of the items that a part is about is in the list."""
    if not _needs_all(part):
        return part
    wanted = part.expressions[1] if isinstance(part, exp.Anonymous) else part.expression
    return exp.ArrayOverlaps(this=column(ITEMS), expression=wanted.copy())


# Answers --------------------------------------------------------------------------------------------------------------
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
TOLD = 0.95  # confidence at which an item set that is listed occurs at all


class ViewAnswers(private.PrivateAnswers):
    """An open release that answers count queries over items; it is read and fitted once."""

    records = values = "privsql_sets"
    formulas: ClassVar[Mapping[str, str]] = {"baseline": BASELINE, "reconstructed": FORMULA}

    def parse_sql(self, sql: str, lookups: Lookups) -> Statement:  # noqa: ARG002 (items join nothing)
        """Return a count query over items, which a public universe has to hold."""
        return parse_counted(sql, self._roles, self._manifest, lambda: self.item_labels)

    @cached_property
    def published_views(self) -> PublishedViews:
        """The release's tables as arrays."""
        law = private.find_law(SetValued.model_validate(self._manifest.parameters))
        result = read_views(self._db, self._database, law, self._roles)
        with refuse_damaged():
            _ = result.choice, result.noisy_tables, result.set_patterns
        return result

    @property
    def item_labels(self) -> tuple[str, ...]:
        """Text of the items, in the order of the universe."""
        return self.published_views.labels

    @cached_property
    def _measured_places(self) -> dict[int, int]:
        return {code: place for place, code in enumerate(self.published_views.choice.codes.tolist())}

    def make_statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:  # noqa: ARG002
        """The SQL that reads the release for an answer, and the formula in words."""
        return fill("setvalued/counted", {"marginals": table("privsql_marginals")}), self.formulas[estimator]

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """Return the answer, one row; ``UsageError`` for what was not measured."""
        whole = all_of([*query.filters["qi"], *query.filters["sa"]])
        condition = read_condition(self._db, whole, table("privsql_universe"))
        if not condition.counts:
            codes = self._order_codes(condition.item_codes)
            return [self._estimate_patterns(codes, condition.patterns_met(self._db, codes), estimator, confidence)]
        codes = self._all_items()
        met = condition.patterns_met(self._db, codes, count_items(len(codes)).reshape(-1))
        return [self._estimate_patterns(codes, met, estimator, confidence)]

    def _all_items(self) -> list[int]:
        """All items, where all were measured."""
        codes: list[int] = self.published_views.choice.codes.tolist()
        universe = self.published_views.universe_size
        if len(codes) < universe:
            raise UsageError(
                f"len({self._roles.sensitive[0].name}) can't be answered: {len(codes)} of {universe:,} items were "
                "measured, and the release does not say how many other items a record has"
            )
        return codes

    def _order_codes(self, codes: Sequence[int]) -> list[int]:
        """The measured ones by their places, then the others."""
        return sorted(codes, key=lambda code: (self._measured_places.get(code, len(self._measured_places)), code))

    def containing(self, codes: Sequence[int], estimator: str, confidence: float) -> Estimate:
        """The number of records that contain all of some items.

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
        """Of the records whose patterns of ``codes``, the measured ones first, meet a condition (2^k,)."""
        chosen = tuple(self._measured_places[code] for code in codes if code in self._measured_places)
        others, doubt = len(codes) - len(chosen), 1 - confidence
        whole = meets.reshape((*(2,) * len(chosen), 1 << others)).astype(np.float64)
        result = self.published_views.model.answer(chosen, whole[..., 0], doubt, leaning=estimator != "baseline")
        estimate, error, low, high = result.estimate, result.error, result.low, result.high
        if others:
            error, (low, high) = None, self._bound_unmeasured(chosen, whole, others, doubt / 3)
            estimate = min(max(estimate, low), high)
        estimate = estimate if estimator == "baseline" else max(estimate, 0.0)
        return Estimate((), estimate, error, min(low, estimate), max(high, estimate, 0.0))

    def _bound_unmeasured(self, chosen: Clique, whole: Reals, others: int, doubt: float) -> tuple[float, float]:
        """Bounds of what is asked of items that were not measured, each with a chance of ``doubt`` to be missed.

        A record without any of these meets the condition as ``whole[.., 0]`` has it, and at most ``outside`` records
        have one of them.
        """
        model, outside = self.published_views.model, others * self._most_unmeasured(doubt)
        low, high = model.bound_between(chosen, whole.min(axis=-1), whole.max(axis=-1), doubt)
        least, most = model.bound_between(chosen, whole[..., 0], whole[..., 0], doubt)
        low, high = max(low, least - outside), min(high, most + outside)
        return low, max(low, high)

    def _most_unmeasured(self, doubt: float) -> float:
        """At most so many records have any one item that was not measured, but for a chance of ``doubt``."""
        held = self.published_views
        last = held.choice.budgets[-1]
        if last is None:
            return np.inf
        _, high = held.model.bound_between((len(held.choice.codes) - 1,), HAVING, HAVING, doubt)
        return high + most_excess(held.universe_size, held.law.choice_epsilon(last), doubt / 2)

    # Frequent item sets ---

    def top_sets(self, number: int, estimator: str) -> list[tuple[tuple[int, ...], float]]:
        """The item sets with most records: their codes, ascending, and estimates.

        Only sets of which a table tells the number of records, and of which it is above 0 at 95 % confidence.
        """
        self.require_estimator(estimator)
        model, codes = self.published_views.model, self.published_views.choice.codes
        estimated, counted, variance = (
            one.reshape(-1) for one in model.superset_counts(leaning=estimator != "baseline")
        )
        occurs = counted > np.sqrt(variance) * views_model.normal_quantile(TOLD)
        occurs[0] = False
        listed = np.flatnonzero(occurs & (estimated > 0))
        sizes = count_items(len(codes)).reshape(-1)
        order = np.lexsort((listed, sizes[listed], -estimated[listed]))[:number]
        places = np.array(np.unravel_index(listed[order], (2,) * len(codes))).T
        chosen = [tuple(sorted(codes[one > 0].tolist())) for one in places]
        return list(zip(chosen, estimated[listed[order]].tolist(), strict=True))

    def list_frequent(self, top: int, estimator: str) -> list[tuple[list[str], float]]:
        """The most frequent item sets, each with its estimated number of records."""
        return [([self.item_labels[code] for code in codes], number) for codes, number in self.top_sets(top, estimator)]

    def make_synthetic(self) -> pa.Table:
        """Synthetic records that fit the release, (record, item) in order; the empty have none."""
        rows = self.published_views.rows["sets"]
        lists, weight = rows["items"].combine_chunks(), rows["weight"].to_numpy()
        repeated = lists.take(pa.array(np.repeat(np.arange(len(lists)), weight)))
        return pa.table({"record": repeated.value_parent_indices().cast(pa.int64()), "item": repeated.flatten()})
