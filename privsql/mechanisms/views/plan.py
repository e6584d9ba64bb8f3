"""Decide by public rules which items and which views of item sets are counted, and with which budgets."""

from __future__ import annotations

from fractions import Fraction
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from privsql.dp_random import PURE, NoiseLaw
from privsql.errors import InfeasibleError, UsageError
from privsql.exact import fraction_text
from privsql.mechanisms.dp.parameters import find_law, total_budget
from privsql.mechanisms.views.item_counts import (
    AGAIN,
    ALONE,
    LENGTHS,
    SHARES,
    ItemCounts,
    ItemRule,
    choose_rule,
    is_sparse,
)
from privsql.mechanisms.views.model import count_items, maximal_sets, sum_subsets
from privsql.mechanisms.views.parameters import TINY_UNIVERSE, SetValued, ViewPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.dp.noisy_tables import Clique, NoisyTable, Reals
    from privsql.model.records import Records

# Large universes ------------------------------------------------------------------------------------------------------
# In a large universe every item is counted first (``item_counts``). Then the items that get views are chosen: declared
# items, and those with the largest published counts. That choice reads no record, so it spends nothing.

MISSED = 8  # views may err by one part in so many of the last item's count


def due_lengths(params: SetValued, universe: int, place: int, first: NoisyTable | None = None) -> Layout:
    """Return the one or two tables of record lengths that a release of a large universe counts, with their budgets.

    A universe is large if it has more than ``TINY_UNIVERSE`` items. A second table, which makes the lengths more
    precise, is counted if the first one shows that noisy tables of items would be useless. There is none if the
    publisher declared item sets: their tables are wanted whatever their noise.

    Args:
        params: The parameters.
        universe: The number of items.
        place: The number of the lengths' column in the noisy tables; it follows the columns of the items.
        first: The first table once it is counted; None before.
    """
    budget, columns = total_budget(params), (place,)
    result: Layout = [(columns, LENGTHS * budget, None)]
    if first is not None and not params.workload:
        views = covering_design(TINY_UNIVERSE, VIEW)
        left = budget * (1 - LENGTHS - SHARES[-1]) / len(views)
        if is_sparse(first, universe, first.law.variance(left) * 2 ** (VIEW - 2)):
            result.append((columns, AGAIN * budget, None))
    return result


def find_rule(lengths: Sequence[NoisyTable], params: SetValued, universe: int) -> ItemRule:
    """Return the rule by which all items of a large universe are counted, given the noisy record lengths."""
    shares = SHARES if len(lengths) == 1 else (ALONE,)
    return choose_rule(lengths[-1], universe, total_budget(params), shares)


def choose_items(counts: ItemCounts, params: SetValued, declared: Sequence[int]) -> list[int]:
    """Return the codes of the items that get noisy tables: the declared ones, then those with the largest counts.

    The publisher declares items in parameter ``workload``. As many items are chosen as keep the noise small: the
    standard error of a count in the tables is at most an eighth of the count of the last item that is chosen. There are
    at least two, and at most ``TINY_UNIVERSE``.

    Args:
        counts: The published counts of all items.
        params: The parameters.
        declared: The codes of the declared items.
    """
    chosen = [*declared, *counts.largest_items(TINY_UNIVERSE - len(declared), declared)]
    left = total_budget(params) - sum(one.budget for one in counts.lengths) - counts.rule.budget

    def is_told(number: int) -> bool:
        views, size = covering_design(number, VIEW), min(number, VIEW)
        variance = counts.law.variance(left / len(views)) * 2 ** (size - 1) * number / (size * len(views))
        return bool(MISSED * variance**0.5 <= counts.estimates[chosen[number - 1]])

    least = max(2, len(declared))
    return chosen[: next((number for number in range(len(chosen), least, -1) if is_told(number)), least)]


# Covering -------------------------------------------------------------------------------------------------------------
# Views are few sets of items that together hold every pair; a public rule finds them.

STARTS = 60  # orders of items from which a greedy search starts


@cache
def covering_design(items: int, size: int) -> tuple[tuple[int, ...], ...]:
    """Choose few sets of items that get noisy tables, by a greedy search; every pair of items is in some set.

    A set grows item by item. The next item is the one that forms the most new pairs with the set's items: pairs that no
    earlier set holds. Ties go to the item that has the most such pairs with all items, then to the first one in some
    order. The search runs for each of ``STARTS`` orders, and the first result with the fewest sets is taken. It depends
    on the two arguments alone.

    Args:
        items: The number of items, which are 0, 1, ..
        size: The number of items in a set.
    """
    if items <= size:
        return (tuple(range(items)),)
    places: Reals = np.arange(1.0, items + 1)
    return min(
        (_cover_pairs(size, (places * start * 0.6180339887498949) % 1.0) for start in range(1, STARTS + 1)), key=len
    )


def _cover_pairs(size: int, order: Reals) -> tuple[tuple[int, ...], ...]:
    """Return few sets of items, found by one greedy search, so that every pair of items is in some set.

    Args:
        size: The number of items in a set.
        order: A number below 1 for each item, which breaks ties: the largest comes first.
    """
    items, result = len(order), []
    left = ~np.eye(items, dtype=bool)
    while left.any():
        degree = left.sum(axis=1)
        chosen: list[int] = []
        for _ in range(size):
            score = left[chosen].sum(axis=0) * items + degree + order
            score[chosen] = -1
            chosen.append(int(np.argmax(score)))
        left[np.ix_(chosen, chosen)] = False
        result.append(tuple(sorted(chosen)))
    return tuple(result)


# Layout ---------------------------------------------------------------------------------------------------------------
# A public rule decides in exact fractions what is counted, and with which budgets.
#
# In a small universe (``TINY_UNIVERSE``) all items are measured. Half of the budget goes to views in equal parts: sets
# of 8 items that together hold all pairs. The other half goes to the table of all 2^m patterns. In a large universe
# items are counted first, and the rest of the budget goes to views over some of them. Item sets that the publisher
# declared get tables of their own, as far as that lowers the mean standard error of the counts of records with all of
# their items.

VIEW = 8  # items of a view
LARGEST_TABLE = 10  # most items of a declared set that gets a table of its own
QUARTERS = tuple(Fraction(k, 4) for k in range(1, 4))
GAIN = 1e-9  # least improvement by which a split of the budget replaces an earlier one
Layout = list[tuple["Clique", Fraction, None]]  # columns, budget, and None as no choice was made


def lay_out_all(items: int, params: SetValued, declared: Sequence[Clique] = ()) -> Layout:
    """Return the tables over all items of a universe of at most ``TINY_UNIVERSE``, with budgets that add up to epsilon.

    Algorithm ``basic`` has one table of all 2^m patterns of m items (Chen et al. 2011, section 4.1). If the publisher
    declared item sets, splits of the budget in steps of a quarter are compared. The first one is taken whose counts of
    these sets have the smallest mean standard error.

    Args:
        items: The number of items.
        params: The parameters.
        declared: The item sets that the publisher declared, as columns.
    """
    epsilon, own = total_budget(params), choose_own_tables(declared)
    if items <= VIEW or params.algorithm == "basic":
        return [(tuple(range(items)), epsilon, None)]
    best, least = _split_budget(items, epsilon, (), Fraction(0), Fraction(1, 2)), np.inf
    if not declared:
        return best
    parts = [Fraction(0), *QUARTERS] if own else [Fraction(0)]
    splits = [best, *(_split_budget(items, epsilon, own, part, views) for part in parts for views in QUARTERS)]
    for layout in splits:
        error = mean_error(items, layout, declared, find_law(params))
        if error < least * (1 - GAIN):
            best, least = layout, error
    return best


def lay_out_chosen(items: int, epsilon: Fraction, declared: Sequence[Clique] = ()) -> Layout:
    """Return the tables over items that were chosen from a large universe, with budgets that add up to ``epsilon``.

    Item sets that the publisher declared get half of the budget, if there are any. The rest goes to tables that
    together hold every pair of items.
    """
    own = choose_own_tables(declared)
    return _split_budget(items, epsilon, own, Fraction(bool(own), 2), Fraction(1))


def choose_own_tables(declared: Sequence[Clique]) -> list[Clique]:
    """Return the declared item sets that get a table of their own.

    Sets of more than ``LARGEST_TABLE`` items, and sets that are contained in another such set, get none.
    """
    return maximal_sets([one for one in declared if len(one) <= LARGEST_TABLE])


def mean_error(items: int, layout: Layout, declared: Sequence[Clique], law: NoiseLaw = PURE) -> float:
    """Return the mean standard error of the counts of records that hold all items of a declared set.

    It tells which of several layouts of noisy tables is best.

    Args:
        items: The number of items.
        layout: The tables to be counted, with their budgets.
        declared: The item sets that the publisher declared, as columns.
        law: The law of the noise.
    """
    precision: Reals = np.zeros((2,) * items)
    for places, epsilon, _ in layout:
        block = tuple(slice(None) if place in places else 0 for place in range(items))
        precision[block] += 1 / (law.variance(epsilon) * 2 ** len(places))
    variance = sum_subsets(1 / precision) * 0.25 ** count_items(items)
    errors = [variance[tuple(int(place in one) for place in range(items))] for one in declared]
    return float(np.sqrt(errors).mean())


def _split_budget(
    items: int, epsilon: Fraction, declared: Sequence[Clique], for_declared: Fraction, for_views: Fraction
) -> Layout:
    """Return the tables for one way to split the budget between three kinds of tables.

    These are a table for each declared item set, tables that together hold every pair of items, and one table of all
    patterns of the items.

    Args:
        items: The number of items.
        epsilon: The budget.
        declared: The declared item sets.
        for_declared: The share of the budget for tables of declared sets.
        for_views: The share of the rest for tables that hold every pair; with 1 there is no table of all patterns.
    """
    result: Layout = [(one, epsilon * for_declared / len(declared), None) for one in declared if for_declared]
    left, views = epsilon * (1 - for_declared), covering_design(items, VIEW)
    result += [(view, left * for_views / len(views), None) for view in views]
    return result if for_views == 1 else [*result, (tuple(range(items)), left * (1 - for_views), None)]


def due_tables(
    params: SetValued,
    universe: int,
    codes: Sequence[int],
    wanted: Sequence[Sequence[int]],
    counts: ItemCounts | None,
) -> Layout:
    """Return the noisy tables of items that a release must have, with their budgets.

    Args:
        params: The parameters.
        universe: The number of items of the universe.
        codes: The codes of the items of these tables.
        wanted: The codes of each declared item set.
        counts: The noisy counts of all items of a large universe; None for a small one.
    """
    place = {code: at for at, code in enumerate(codes)}
    declared = [tuple(sorted(place[code] for code in one)) for one in wanted]
    if counts is None:
        return lay_out_all(len(place), params, declared)
    lengths = due_lengths(params, universe, len(place), counts.lengths[0])
    left = total_budget(params) - sum(budget for _, budget, _ in lengths) - counts.rule.budget
    return [*lengths, *lay_out_chosen(len(place), left, declared)]


# Specification --------------------------------------------------------------------------------------------------------


def declared_sets(params: SetValued, labels: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the item sets that parameter ``workload`` declares, each as the codes of its items in ascending order.

    Raises:
        UsageError: A declared item is not in the universe.
        InfeasibleError: The universe has too many items for ``basic``, or too many items of a large universe are
            declared.
    """
    large = len(labels) > TINY_UNIVERSE
    if params.algorithm == "basic" and large:
        raise InfeasibleError(
            f"algorithm 'basic' counts every set of items, 2^{len(labels)} of them; "
            f"it takes at most {TINY_UNIVERSE} items, 'views' and 'diffpart' take any number"
        )
    codes = {label: code for code, label in enumerate(labels)}
    if (strange := next((item for one in params.workload for item in one if item not in codes), None)) is not None:
        raise UsageError(f"workload: {strange!r} is not in the universe")
    result = [tuple(sorted(codes[item] for item in one)) for one in params.workload]
    if large and (items := len(named_first(result))) > TINY_UNIVERSE:
        raise InfeasibleError(
            f"workload: it names {items} items; for a large universe at most {TINY_UNIVERSE} are possible"
        )
    if large and any(len(one) > LARGEST_TABLE for one in result):
        raise InfeasibleError(f"workload: for a large universe a set can have at most {LARGEST_TABLE} items")
    return result


def named_first(wanted: Sequence[Sequence[int]]) -> list[int]:
    """Return the codes of all declared items, each once, in the order in which the declared sets name them."""
    return list(dict.fromkeys(code for one in wanted for code in one))


def plan_views(source: Records, params: SetValued) -> ViewPlan:
    """Plan a release of noisy tables of items: what is counted at most, and the budgets. No record is read."""
    items, budget, wanted = len(source.labels), total_budget(params), declared_sets(params, source.labels)
    make_plan = partial(
        ViewPlan, epsilon=fraction_text(params.epsilon), items=items, measured_at_most=min(items, TINY_UNIVERSE)
    )
    if items > TINY_UNIVERSE:
        shares = [(LENGTHS, share) for share in SHARES] + [(LENGTHS + AGAIN, ALONE)]
        return make_plan(
            lengths_budgets=tuple(fraction_text(lengths * budget) for lengths, _ in shares),
            items_budgets=tuple(fraction_text(share * budget) for _, share in shares),
            tables_budgets=tuple(fraction_text((1 - lengths - share) * budget) for lengths, share in shares),
        )
    due = lay_out_all(items, params, wanted)
    cells = sum(1 << len(places) for places, *_ in due)
    return make_plan(tables=len(due), cells=cells, tables_budgets=(fraction_text(budget),))
