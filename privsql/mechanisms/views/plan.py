"""Decide by public rules which items and views of item sets are measured, and for how much."""

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
# Of a large universe every item is counted first (``item_counts``). Views are then made of the items that the publisher
# declared and of those with the largest published counts: that choice looks at no record, so it costs nothing.

MISSED = 8  # one part in so many of its records is what views may be wrong by for the last item


def due_lengths(params: SetValued, universe: int, place: int, first: NoisyTable | None = None) -> Layout:
    """Return the tables of record lengths that a release measures: one, or two.

    A second one is measured if the counts of the first show that views would be too noisy. A publisher who declares
    sets wants these whatever their noise, so there is no second table then.

    Args:
        params: The parameters.
        universe: The number of items.
        place: The column of the lengths, which follows those of the items of views.
        first: The first table once it is measured; None before.
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
    """Return the rule by which all items of a large universe are counted, from the published record lengths."""
    shares = SHARES if len(lengths) == 1 else (ALONE,)
    return choose_rule(lengths[-1], universe, total_budget(params), shares)


def choose_items(counts: ItemCounts, params: SetValued, declared: Sequence[int]) -> list[int]:
    """Return the codes of the items that get views: the declared ones, then those with the largest published counts.

    There are as many as keep the standard error of a view at an eighth of the last item's count or less: at least two,
    and at most ``TINY_UNIVERSE``.
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
# Views: few sets of places that together hold every pair, found by a public rule.

STARTS = 60  # orders of the places from which a covering is built; the smallest one is taken


@cache
def covering_design(items: int, size: int) -> tuple[tuple[int, ...], ...]:
    """Return a small covering design: sets of ``size`` of the places 0..items-1 that together hold every pair.

    A greedy search builds it. A set grows by the place that makes the most new pairs with the places in it. Ties go to
    the place with the most pairs left, then by a fixed order of places. The search runs once for each of ``STARTS``
    orders, and the first covering with the fewest sets is taken. The result depends on the two numbers alone.
    """
    if items <= size:
        return (tuple(range(items)),)
    places: Reals = np.arange(1.0, items + 1)
    return min(
        (_cover_pairs(size, (places * start * 0.6180339887498949) % 1.0) for start in range(1, STARTS + 1)), key=len
    )


def _cover_pairs(size: int, order: Reals) -> tuple[tuple[int, ...], ...]:
    """Return one covering; ``order`` breaks ties by a number below 1 for each place."""
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
# What is measured, and with which budgets: a public rule, in exact fractions.
#
# All items are measured where there are few (``TINY_UNIVERSE``). Half of the budget goes to views, sets of 8 items that
# together hold all pairs, in equal parts, half to the table of all 2^m patterns. More items are counted first, and what
# is left goes to views over some of them. Sets of items that the publisher declared get tables of
# their own, as far as that lowers the mean standard error of how many records hold all items of each.

VIEW = 8  # items of a view
LARGEST_TABLE = 10  # items of a declared set that gets a table of its own
QUARTERS = tuple(Fraction(k, 4) for k in range(1, 4))
GAIN = 1e-9  # by which a split of the budget must be better than the one before
Layout = list[tuple["Clique", Fraction, None]]  # (places, budget, no choice)


def lay_out_all(items: int, params: SetValued, declared: Sequence[Clique] = ()) -> Layout:
    """Return the tables over all items of a small universe; their budgets add up to epsilon.

    ``basic`` has one table of all 2^m patterns (Chen et al. 2011, section 4.1). For ``declared`` sets the budget is
    split in quarters so that the mean standard error is smallest; the first such split is taken.
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
    """Return the tables over items that were chosen from a large universe.

    If sets are declared they get half of the budget, and views get the rest.
    """
    own = choose_own_tables(declared)
    return _split_budget(items, epsilon, own, Fraction(bool(own), 2), Fraction(1))


def choose_own_tables(declared: Sequence[Clique]) -> list[Clique]:
    """Return the declared sets that get a table: those that are not too long and not part of another one."""
    return maximal_sets([one for one in declared if len(one) <= LARGEST_TABLE])


def mean_error(items: int, layout: Layout, declared: Sequence[Clique], law: NoiseLaw = PURE) -> float:
    """Return the mean standard error, over the declared sets, of the number of records that hold the whole set."""
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
    """Return the layout for one split of the budget: tables of declared sets, views, and the table of all patterns.

    ``for_declared`` is the share of epsilon for declared sets, ``for_views`` the share of the rest that views get.
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
    """Return the tables of patterns that are to be measured over the items of views."""
    place = {code: at for at, code in enumerate(codes)}
    declared = [tuple(sorted(place[code] for code in one)) for one in wanted]
    if counts is None:
        return lay_out_all(len(place), params, declared)
    lengths = due_lengths(params, universe, len(place), counts.lengths[0])
    left = total_budget(params) - sum(budget for _, budget, _ in lengths) - counts.rule.budget
    return [*lengths, *lay_out_chosen(len(place), left, declared)]


# Specification --------------------------------------------------------------------------------------------------------


def declared_sets(params: SetValued, labels: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the codes of the items of every declared set, each in ascending order.

    Raises:
        UsageError: A declared item is not in the universe.
        InfeasibleError: There are too many items for 'basic', or too many declared ones for a large universe.
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
    """Return the codes of the declared items, each once, in the order in which sets name them."""
    return list(dict.fromkeys(code for one in wanted for code in one))


def plan_views(source: Records, params: SetValued) -> ViewPlan:
    """Return the plan of a release: the most that is measured, and the budgets. It does not look at the records."""
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
