"""Decide by public rules which items and views of item sets are measured, and for how much."""

from __future__ import annotations

from fractions import Fraction
from functools import cache, partial
from math import log
from typing import TYPE_CHECKING

import numpy as np

from privsql.dp_random import PURE, NoiseLaw
from privsql.errors import InfeasibleError, UsageError
from privsql.exact import fraction_text
from privsql.mechanisms.dp.parameters import find_law, total_budget
from privsql.mechanisms.views.model import count_items, maximal_sets, sum_subsets
from privsql.mechanisms.views.parameters import TINY_UNIVERSE, SetValued, ViewPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.dp.noisy_tables import Clique, Reals
    from privsql.mechanisms.views.tables import ItemChoice
    from privsql.model.records import Records

# Choosing -------------------------------------------------------------------------------------------------------------
# Choosing items of a large universe: how many is a public rule, which ones a private choice.
#
# One hundredth of the budget counts the records, three tenths choose. The items that the publisher declared come first
# and cost nothing; the others are chosen one after the other, each by OpenDP's noisy maximum over the numbers of
# records of all items that are left, with an equal part e of the budget (a record more raises each number by one at
# most: the scores are monotonic). A score is exceeded by another one by more than t with a probability of at most N
# exp(-e t).

TOTAL = Fraction(1, 100)  # of the budget: the number of records
CHOICE = Fraction(3, 10)
MISSED = 8  # one part in so many of the records is what the last choice may be wrong by


def how_many(budget: Fraction, universe: int, records: int, declared: int, law: NoiseLaw = PURE) -> int:
    """Return how many items are measured: at least one and those declared, at most ``TINY_UNIVERSE``.

    It is the largest number l for which the choice errs by at most an eighth of the (noisy) number of ``records``:
    ln(N) / e <= records / 8, with the epsilon e of one of l choices that share three tenths of the budget.
    """
    room = MISSED * Fraction(log(universe))
    most = next(
        (k for k in range(TINY_UNIVERSE, 0, -1) if room <= law.choice_epsilon(CHOICE * budget / k) * max(records, 0)), 0
    )
    return max(1, declared, min(TINY_UNIVERSE, declared + most))


def most_excess(universe: int, epsilon: Fraction, chance: float) -> float:
    """Return by how much an item may exceed the last one that was chosen, but for a ``chance`` b: ln(N/b)/e."""
    return log(universe / chance) / float(epsilon)


def due_choices(params: SetValued, universe: int, declared: int, records: int) -> tuple[Fraction | None, ...]:
    """Return what the choice of each measured item spends, of a large universe: None for ``declared`` ones."""
    budget = total_budget(params)
    chosen = how_many(budget, universe, records, declared, find_law(params)) - declared
    return (*(None,) * declared, *(CHOICE * budget / max(chosen, 1),) * chosen)


# Covering -------------------------------------------------------------------------------------------------------------
# Views: few sets of places that together hold every pair, found by a public rule.

STARTS = 60  # orders of the places from which a covering is built; the smallest one is taken


@cache
def covering_design(items: int, size: int) -> tuple[tuple[int, ...], ...]:
    """Return sets of ``size`` of the places 0..items-1 that together hold every pair: a small covering design.

    Greedy: a set grows by the place that makes most new pairs with those in it, ties by how many pairs of a place are
    left and then by an order of the places; once for each of ``STARTS`` orders, which are fixed. The first covering
    with the fewest sets is taken. Depends on the two numbers alone.
    """
    if items <= size:
        return (tuple(range(items)),)
    places: Reals = np.arange(1.0, items + 1)
    return min(
        (_cover_pairs(size, (places * start * 0.6180339887498949) % 1.0) for start in range(1, STARTS + 1)), key=len
    )


def _cover_pairs(size: int, order: Reals) -> tuple[tuple[int, ...], ...]:
    """Return one covering; ``order``: a number below 1 for each place, by which ties are broken."""
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
# together hold all pairs, in equal parts, half to the table of all 2^m patterns. Of more items some are chosen first
# (``choosing``), and what is left goes to views over these. Sets of items that the publisher declared get tables of
# their own, as far as that lowers the mean standard error of how many records hold all items of each.

VIEW = 8  # items of a view
LARGEST_TABLE = 10  # items of a declared set that gets a table of its own
QUARTERS = tuple(Fraction(k, 4) for k in range(1, 4))
GAIN = 1e-9  # by which a split of the budget must be better than the one before
Layout = list[tuple["Clique", Fraction, None]]  # (places, budget, no choice)


def lay_out_all(items: int, params: SetValued, declared: Sequence[Clique] = ()) -> Layout:
    """Return tables over all items of a small universe; their budgets add up to epsilon.

    ``basic`` has one table, of all 2^m patterns (paper, section 4.1). With ``declared`` sets the split of the budget is
    the first one of the smallest mean standard error among quarters.
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
    """Return the layout over items chosen from a large universe: half for declared sets, if any, the rest for views."""
    own = choose_own_tables(declared)
    return _split_budget(items, epsilon, own, Fraction(bool(own), 2), Fraction(1))


def choose_own_tables(declared: Sequence[Clique]) -> list[Clique]:
    """Return the declared sets that get tables: not too long, and not inside another one."""
    return maximal_sets([one for one in declared if len(one) <= LARGEST_TABLE])


def mean_error(items: int, layout: Layout, declared: Sequence[Clique], law: NoiseLaw = PURE) -> float:
    """Return the mean standard error of the numbers of records that hold all items of each declared set."""
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
    """Return declared tables, views, and the table of all patterns; ``for_views`` is the share of what is left."""
    result: Layout = [(one, epsilon * for_declared / len(declared), None) for one in declared if for_declared]
    left, views = epsilon * (1 - for_declared), covering_design(items, VIEW)
    result += [(view, left * for_views / len(views), None) for view in views]
    return result if for_views == 1 else [*result, (tuple(range(items)), left * (1 - for_views), None)]


def due_tables(params: SetValued, universe: int, choice: ItemChoice, wanted: Sequence[Sequence[int]]) -> Layout:
    """Return the tables over the measured items, those of a large universe behind the count of all records."""
    place = {code: at for at, code in enumerate(choice.codes.tolist())}
    declared = [tuple(sorted(place[code] for code in one)) for one in wanted]
    if universe <= TINY_UNIVERSE:
        return lay_out_all(universe, params, declared)
    budget = total_budget(params)
    left = budget * (1 - TOTAL) - choice.total_budget
    return [((), TOTAL * budget, None), *lay_out_chosen(len(place), left, declared)]


# Specification --------------------------------------------------------------------------------------------------------


def declared_sets(params: SetValued, labels: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the codes of the declared sets, each ascending.

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
    """Return the codes of the declared items, once each, in the order in which they are named."""
    return list(dict.fromkeys(code for one in wanted for code in one))


def plan_views(source: Records, params: SetValued) -> ViewPlan:
    """Return what is known without looking at the records: what is measured, at most, and with which budgets."""
    items, budget, wanted = len(source.labels), total_budget(params), declared_sets(params, source.labels)
    make_plan = partial(
        ViewPlan, epsilon=fraction_text(params.epsilon), items=items, measured_at_most=min(items, TINY_UNIVERSE)
    )
    if items > TINY_UNIVERSE:
        choice = CHOICE * budget * (len(named_first(wanted)) < TINY_UNIVERSE)
        return make_plan(
            records_budget=fraction_text(TOTAL * budget),
            choice_budget=fraction_text(choice),
            tables_budget=fraction_text(budget * (1 - TOTAL) - choice),
        )
    due = lay_out_all(items, params, wanted)
    cells = sum(1 << len(places) for places, *_ in due)
    return make_plan(tables=len(due), cells=cells, tables_budget=fraction_text(budget))
