"""Choose views of item sets, measure them with noise, and publish them with synthetic records."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from math import log
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.dp_random import PURE, NoiseLaw
from privsql.engine.sqlfiles import column, table
from privsql.errors import InfeasibleError, UsageError
from privsql.exact import fraction_text
from privsql.mechanisms.dp.mechanism import find_law, total_budget
from privsql.mechanisms.dp.noisy_tables import LeastSquares, NoisyTable, measure_table
from privsql.mechanisms.dp.tables import NOISY_TABLES, TABLE_ORDERS, read_noisy_tables
from privsql.mechanisms.views.evaluation import UNIVERSE, WeightedSets, read_labels
from privsql.mechanisms.views.model import ViewModel, count_items, sum_subsets
from privsql.mechanisms.views.parameters import TINY_UNIVERSE
from privsql.model.arrays import round_copies
from privsql.model.tables import SETS as LISTS
from privsql.model.tables import ReleaseTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.dp_random import TableNoise
    from privsql.engine.database import Relations
    from privsql.engine.sqlfiles import Roles
    from privsql.mechanisms.dp.noisy_tables import Clique, Ints, Reals
    from privsql.mechanisms.views.parameters import SetValued

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


def choose(counts: Sequence[float], declared: Sequence[int], number: int, budget: Fraction, noise: TableNoise) -> Ints:
    """Codes of the measured items in order: those declared, then ``number`` less so many, at ``budget`` each."""
    scores, left = np.array(counts, dtype=np.int64), np.ones(len(counts), dtype=bool)
    chosen = list(declared)
    left[chosen] = False
    while len(chosen) < number:
        candidates = np.flatnonzero(left)
        code = int(candidates[noise.choose_best(scores[candidates], budget)])
        chosen.append(code)
        left[code] = False
    return np.array(chosen, dtype=np.int64)


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


# Tables ---------------------------------------------------------------------------------------------------------------
# The tables of a release of views: their columns, what was chosen and synthetic records as tables.

CHOSEN, SETS = "privsql_chosen", "privsql_sets"
TABLES = {
    UNIVERSE: ReleaseTable(("code INTEGER", "item ITEM")),
    CHOSEN: ReleaseTable(("place INTEGER", "item ITEM", "budget VARCHAR", "scale DOUBLE")),
    **NOISY_TABLES,
    SETS: ReleaseTable((LISTS, "weight BIGINT")),
}


@dataclass(frozen=True)
class ItemChoice:
    """The measured items: their codes in order (m,), and the budget of each one's choice; None where it was public."""

    codes: Ints
    budgets: tuple[Fraction | None, ...]

    @property
    def total_budget(self) -> Fraction:
        """On all choices together."""
        return sum((one for one in self.budgets if one is not None), Fraction(0))


def choice_table(choice: ItemChoice, law: NoiseLaw) -> pa.Table:
    """``privsql_chosen``, by code."""
    return pa.table(
        {
            "place": pa.array(np.arange(len(choice.codes)), pa.int32()),
            "code": pa.array(choice.codes, pa.int32()),
            "budget": pa.array([None if one is None else fraction_text(one) for one in choice.budgets], pa.string()),
            "scale": pa.array(
                [None if one is None else choice_scale(one, law) for one in choice.budgets], pa.float64()
            ),
        }
    )


def choice_scale(budget: Fraction, law: NoiseLaw) -> float:
    """The scale of the noise of a choice among numbers of records: 1/epsilon."""
    return law.scale(4 * budget) if law.concentrated else law.scale(budget)


def sets_table(population: Reals, choice: ItemChoice, items: pa.Array) -> pa.Table:
    """``privsql_sets``; ``items``: the universe's, by code."""
    records = round_copies(population.reshape(-1))
    occurring, number = np.flatnonzero(records), len(choice.codes)
    order = np.argsort(choice.codes)  # a set lists its items in the order of the universe
    lists = list_patterns(occurring, items.take(pa.array(choice.codes[order])), number - 1 - order)
    return pa.table({"items": lists, "weight": pa.array(records[occurring], pa.int64())})


def list_patterns(patterns: Ints, items: pa.Array, bits: Ints) -> pa.ListArray:
    """The items of each pattern as a list; ``bits``: which bit of a pattern says that it has each item."""
    which, place = np.nonzero(patterns[:, None] >> bits & 1)
    offsets = np.searchsorted(which, np.arange(len(patterns) + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), items.take(pa.array(place)))


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


def measure_views(
    source: WeightedSets, params: SetValued, wanted: Sequence[tuple[int, ...]], noise: TableNoise
) -> tuple[ItemChoice, list[NoisyTable]]:
    """Return what is measured of a source, and the tables with noise. Epsilon-differentially private.

    A record lies in one cell of each table, so a table spends its budget; choices spend theirs (``choosing``); layouts
    and numbers follow from public parameters and from what was measured before.
    """
    universe, law, known = source.items, find_law(params), list[NoisyTable]()
    if universe <= TINY_UNIVERSE:
        choice = ItemChoice(np.arange(universe, dtype=np.int64), (None,) * universe)
    else:
        first, count = named_first(wanted), np.array(source.weights.sum(), dtype=np.int64)
        known = [measure_table((), count, TOTAL * total_budget(params), noise, law=law)]
        budgets = due_choices(params, universe, len(first), int(known[0].counts))
        codes = choose(source.item_weights.tolist(), first, len(budgets), budgets[-1] or Fraction(0), noise)
        choice = ItemChoice(codes, budgets)
    counts, due = source.count_patterns(choice.codes), due_tables(params, universe, choice, wanted)
    for places, epsilon in due[len(known) :]:
        others = tuple(place for place in range(len(choice.codes)) if place not in places)
        known.append(measure_table(places, counts.sum(axis=others), epsilon, noise, law=law))
    return choice, known


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


# Open releases --------------------------------------------------------------------------------------------------------
# An open release of views as arrays, read from its tables.

ORDERS = {**TABLE_ORDERS, "universe": ["code"], "chosen": ["place"], "sets": ["items"]}


@dataclass(frozen=True)
class PublishedViews:
    """The tables of a release; ``ValueError``, ``KeyError`` where they can't be what was published."""

    rows: Mapping[str, pa.Table]
    labels: tuple[str, ...]
    """Text of the items, in the order of the universe."""
    law: NoiseLaw

    @cached_property
    def choice(self) -> ItemChoice:
        """The measured items."""
        chosen = self.rows["chosen"]
        items = self.rows["universe"]["item"].combine_chunks()
        codes = pc.index_in(chosen["item"].combine_chunks(), value_set=items)
        if codes.null_count or not np.array_equal(chosen["place"].to_numpy(), np.arange(len(codes))):
            raise ValueError("the measured items are not of the universe, or not numbered 0, 1, ..")
        budgets = tuple(None if one is None else Fraction(one) for one in chosen["budget"].to_pylist())
        return ItemChoice(codes.to_numpy().astype(np.int64), budgets)

    @cached_property
    def noisy_tables(self) -> list[NoisyTable]:
        """The tables with noise."""
        measured_labels = [self.labels[code] for code in self.choice.codes.tolist()]
        if any(column.null_count for column in self.rows["marginals"].columns):
            raise ValueError("a cell has no number, or no count")
        return read_noisy_tables(
            self.rows["cliques"], self.rows["marginals"], measured_labels, [2] * len(measured_labels), self.law
        )

    @cached_property
    def synthetic_sets(self) -> WeightedSets:
        """The published sets, of the measured items by their places."""
        rows, items = self.rows["sets"], self.rows["universe"]["item"].combine_chunks().take(self.choice.codes)
        return WeightedSets.from_lists(rows["items"], rows["weight"], items)

    @cached_property
    def model(self) -> ViewModel:
        """Return the model of the tables and the synthetic records."""
        number = len(self.choice.codes)
        population = self.synthetic_sets.count_patterns(np.arange(number)).astype(np.float64)
        return ViewModel(LeastSquares(self.noisy_tables, [2] * number), population)


def _read_rows(name: str, database: str | None, roles: Roles) -> exp.Select:
    rows = TABLES[name].select_inside(roles, table(name, database))
    return exp.select(exp.Star()).from_(rows.subquery("rows"))


def read_views(db: Relations, database: str | None, law: NoiseLaw, roles: Roles) -> PublishedViews:
    """The tables of a release that lies in ``database``, with columns under their names inside."""
    rows = {
        name: db.arrow(_read_rows(f"privsql_{name}", database, roles).order_by(*map(column, keys)))
        for name, keys in ORDERS.items()
    }
    return PublishedViews(rows, read_labels(db, table(UNIVERSE, database)), law)
