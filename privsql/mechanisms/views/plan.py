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
from privsql.mechanisms.views.model import count_items, sum_subsets
from privsql.mechanisms.views.parameters import TINY_UNIVERSE, SetValued, ViewPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.dp.noisy_tables import Clique, Ints, Reals
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
    """How many items are measured: at most ``TINY_UNIVERSE``, at least one, and those that were declared.

    The largest number l for which the choice errs by at most an eighth of the (noisy number of) ``records``:
    ln(N) / e <= records / 8, with the epsilon e of one of l choices that share three tenths of the budget.
    """
    room = MISSED * Fraction(log(universe))
    most = next(
        (k for k in range(TINY_UNIVERSE, 0, -1) if room <= law.choice_epsilon(CHOICE * budget / k) * max(records, 0)), 0
    )
    return max(1, declared, min(TINY_UNIVERSE, declared + most))


def most_excess(universe: int, epsilon: Fraction, chance: float) -> float:
    """By how much an item that was not chosen may exceed the last one that was, but for a ``chance``: ln(N/b)/e."""
    return log(universe / chance) / float(epsilon)


# Covering -------------------------------------------------------------------------------------------------------------
# Views: few sets of places that together hold every pair, found by a public rule.

STARTS = 60  # orders of the places from which a covering is built; the smallest one is taken


@cache
def covering_design(items: int, size: int) -> tuple[tuple[int, ...], ...]:
    """Sets of ``size`` of the places 0..items-1 that together hold every pair: a small covering design.

    Greedy: a set grows by the place that makes most new pairs with those in it, ties by how many pairs of a place are
    left and then by an order of the places; once for each of ``STARTS`` orders, which are fixed. The first covering
    with the fewest sets is taken. Depends on the two numbers alone.
    """
    if items <= size:
        return (tuple(range(items)),)
    tried = (_greedy_covering(items, size, _tie_order(items, start)) for start in range(STARTS))
    return min(tried, key=len)


def _tie_order(items: int, start: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Numbers below 1, one for each place, by which ties are broken: multiples of a fixed fraction."""
    return np.array([((place + 1) * (start + 1) * 0.6180339887498949) % 1.0 for place in range(items)])


def _greedy_covering(
    items: int, size: int, order: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> tuple[tuple[int, ...], ...]:
    left = ~np.eye(items, dtype=bool)
    result = []
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
HALVES = Fraction(0), Fraction(1, 2)  # of a budget for declared tables, and of what is left for views
Layout = list[tuple["Clique", Fraction]]


def lay_out_all(items: int, params: SetValued, declared: Sequence[Clique] = ()) -> Layout:
    """Tables over all items of a small universe: (places, budget); the budgets add up to epsilon.

    ``basic`` has one table, of all 2^m patterns (paper, section 4.1). With ``declared`` sets the split of the budget is
    the first one of the smallest mean standard error among quarters.
    """
    epsilon = total_budget(params)
    if items <= VIEW or params.algorithm == "basic":
        return [(tuple(range(items)), epsilon)]
    if not declared:
        return _split_budget(items, epsilon, (), HALVES)
    declared_tables = tables_of(declared)
    splits = [
        HALVES,
        *((part, views) for part in (Fraction(0), *QUARTERS) if declared_tables or not part for views in QUARTERS),
    ]
    best, least = HALVES, np.inf
    for split in splits:
        result = mean_error(items, _split_budget(items, epsilon, declared_tables, split), declared, find_law(params))
        if result < least * (1 - GAIN):
            best, least = split, result
    return _split_budget(items, epsilon, declared_tables, best)


def lay_out_chosen(items: int, epsilon: Fraction, declared: Sequence[Clique] = ()) -> Layout:
    """Return the layout over items chosen from a large universe: half for declared sets, if any, the rest for views."""
    declared_tables = tables_of(declared)
    return _split_budget(items, epsilon, declared_tables, (Fraction(bool(declared_tables), 2), Fraction(1)))


def tables_of(declared: Sequence[Clique]) -> list[Clique]:
    """The declared sets that get tables: not too long, and not inside another one."""
    short = [one for one in dict.fromkeys(declared) if len(one) <= LARGEST_TABLE]
    return [one for one in short if not any(set(one) < set(other) for other in short)]


def mean_error(items: int, layout: Layout, declared: Sequence[Clique], law: NoiseLaw = PURE) -> float:
    """Mean standard error of the numbers of records that hold all items of each declared set."""
    precision: Reals = np.zeros((2,) * items)
    for places, epsilon in layout:
        block = tuple(slice(None) if place in places else 0 for place in range(items))
        precision[block] += 1 / (law.variance(epsilon) * 2 ** len(places))
    variance = sum_subsets(1 / precision) * 0.25 ** count_items(items)
    errors = [variance[tuple(int(place in one) for place in range(items))] for one in declared]
    return float(np.sqrt(errors).mean())


def _split_budget(
    items: int, epsilon: Fraction, declared: Sequence[Clique], split: tuple[Fraction, Fraction]
) -> Layout:
    of_declared, of_views = split
    result = [(one, epsilon * of_declared / len(declared)) for one in declared if of_declared]
    left = epsilon * (1 - of_declared)
    views = covering_design(items, VIEW)
    result += [(view, left * of_views / len(views)) for view in views]
    whole = left * (1 - of_views)
    return [*result, (tuple(range(items)), whole)] if whole else result


# Measuring ------------------------------------------------------------------------------------------------------------
# Publishing: the private choice, the tables with their noise, and synthetic records that fit them.


def declared_sets(params: SetValued, labels: Sequence[str]) -> list[tuple[int, ...]]:
    """Codes of the declared sets, each ascending; raises ``UsageError`` and ``InfeasibleError``."""
    if params.algorithm == "basic" and len(labels) > TINY_UNIVERSE:
        raise InfeasibleError(
            f"algorithm 'basic' counts every set of items, 2^{len(labels)} of them; "
            f"it takes at most {TINY_UNIVERSE} items, 'views' and 'diffpart' take any number"
        )
    codes = {label: code for code, label in enumerate(labels)}
    for one in params.workload:
        strange = next((item for item in one if item not in codes), None)
        if strange is not None:
            raise UsageError(f"workload: {strange!r} is not in the universe")
    result = [tuple(sorted(codes[item] for item in one)) for one in params.workload]
    if len(labels) > TINY_UNIVERSE:
        items = len(frozenset[int]().union(*result))
        if items > TINY_UNIVERSE:
            raise InfeasibleError(
                f"workload: it names {items} items; for a large universe at most {TINY_UNIVERSE} are possible"
            )
        if any(len(one) > LARGEST_TABLE for one in result):
            raise InfeasibleError(f"workload: for a large universe a set can have at most {LARGEST_TABLE} items")
    return result


def named_first(wanted: Sequence[Sequence[int]]) -> list[int]:
    """Codes of the items that are declared, once each, in the order in which they are named."""
    return list(dict.fromkeys(code for one in wanted for code in one))


def on_places(wanted: Sequence[Sequence[int]], codes: Ints) -> list[Clique]:
    """The declared sets by the places of their items among the measured ones."""
    place = {code: at for at, code in enumerate(codes.tolist())}
    return [tuple(sorted(place[code] for code in one)) for one in wanted]


def due_choices(params: SetValued, universe: int, declared: int, records: int) -> tuple[Fraction | None, ...]:
    """Return what the choice of each measured item spends, of a large universe: nothing for ``declared`` ones."""
    budget, law = total_budget(params), find_law(params)
    chosen = how_many(budget, universe, records, declared, law) - declared
    return (*(None,) * declared, *(CHOICE * budget / max(chosen, 1),) * chosen)


def due_tables(params: SetValued, universe: int, choice: ItemChoice, wanted: Sequence[Sequence[int]]) -> Layout:
    """The tables over the measured items: of a large universe behind that of all records, which choices follow."""
    declared = on_places(wanted, choice.codes)
    if universe <= TINY_UNIVERSE:
        return lay_out_all(universe, params, declared)
    budget, records = total_budget(params), TOTAL * total_budget(params)
    left = budget - records - choice.total_budget
    return [((), records), *lay_out_chosen(len(choice.codes), left, declared)]


# Views ----------------------------------------------------------------------------------------------------------------


def plan_views(source: Records, params: SetValued) -> ViewPlan:
    """Return what is known without looking at the records: what is measured, at most, and with which budgets."""
    items = len(source.labels)
    wanted = declared_sets(params, source.labels)
    make_plan = partial(
        ViewPlan, epsilon=fraction_text(params.epsilon), items=items, measured_at_most=min(items, TINY_UNIVERSE)
    )
    if items > TINY_UNIVERSE:
        records, choice = TOTAL * total_budget(params), CHOICE * total_budget(params)
        choice *= len(named_first(wanted)) < TINY_UNIVERSE
        return make_plan(
            records_budget=fraction_text(records),
            choice_budget=fraction_text(choice),
            tables_budget=fraction_text(total_budget(params) - records - choice),
        )
    due = lay_out_all(items, params, wanted)
    cells = sum(1 << len(places) for places, _ in due)
    return make_plan(tables=len(due), cells=cells, tables_budget=fraction_text(total_budget(params)))
