"""Publishing: the private choice, the tables with their noise, and synthetic records that fit them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import InfeasibleError, UsageError
from privsql.mechanisms.noisytables.measured import measured
from privsql.mechanisms.setvalued.parameters import TINY_UNIVERSE
from privsql.mechanisms.setvalued.views import layout
from privsql.mechanisms.setvalued.views.choosing import Budgets, choose, how_many
from privsql.mechanisms.setvalued.views.patterns import restricted
from privsql.mechanisms.setvalued.views.tables import Choice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.dpnoise import SelectionNoise
    from privsql.mechanisms.noisytables.measured import Clique, Ints, Measured
    from privsql.mechanisms.setvalued.parameters import SetValued


@dataclass(frozen=True)
class Sets:
    """The source: item ``codes`` of set ``owners`` (both (L,)), how many ``records`` have each set, ``counts`` of each
    item's records.
    """

    owners: Ints
    codes: Ints
    records: Ints
    counts: Sequence[int]

    def patterns(self, chosen: Ints) -> Ints:
        """Which of some items each set has."""
        place = np.full(len(self.counts), -1, dtype=np.int64)
        place[chosen] = np.arange(len(chosen))
        own = place[self.codes]
        inside = own >= 0
        bits = np.left_shift(np.int64(1), len(chosen) - 1 - own[inside])
        return np.bincount(self.owners[inside], weights=bits, minlength=len(self.records)).astype(np.int64)


def declared(asked: SetValued, labels: Sequence[str]) -> list[tuple[int, ...]]:
    """Codes of the declared sets, each ascending; raises ``UsageError`` and ``InfeasibleError``."""
    codes = {label: code for code, label in enumerate(labels)}
    for one in asked.workload:
        strange = next((item for item in one if item not in codes), None)
        if strange is not None:
            raise UsageError(f"workload: {strange!r} is not in the universe")
    found = [tuple(sorted(codes[item] for item in one)) for one in asked.workload]
    if len(labels) > TINY_UNIVERSE:
        items = len(frozenset[int]().union(*found))
        if items > TINY_UNIVERSE:
            raise InfeasibleError(f"workload: it names {items} items; of a large universe it can be {TINY_UNIVERSE}")
        if any(len(one) > layout.LARGEST_TABLE for one in found):
            raise InfeasibleError(f"workload: of a large universe a set can have {layout.LARGEST_TABLE} items")
    return found


def named_first(wanted: Sequence[Sequence[int]]) -> list[int]:
    """Codes of the items that are declared, once each, in the order in which they are named."""
    return list(dict.fromkeys(code for one in wanted for code in one))


def on_places(wanted: Sequence[Sequence[int]], codes: Ints) -> list[Clique]:
    """The declared sets by the places of their items among the measured ones."""
    place = {code: at for at, code in enumerate(codes.tolist())}
    return [tuple(sorted(place[code] for code in one)) for one in wanted]


def measure(
    source: Sets, epsilon: Fraction, wanted: Sequence[tuple[int, ...]], noise: SelectionNoise
) -> tuple[Choice, list[Measured]]:
    """What is measured of a source, and the tables with noise. Epsilon-differentially private.

    A record lies in one cell of each table, so a table spends its budget; choices spend theirs (``choosing``); layouts
    and numbers follow from public parameters and from what was measured before.
    """
    universe, known = len(source.counts), []
    if universe <= TINY_UNIVERSE:
        choice = Choice(np.arange(universe, dtype=np.int64), (None,) * universe)
        tables = layout.of_all(universe, epsilon, on_places(wanted, choice.codes))
    else:
        first = named_first(wanted)
        count = np.array(source.records.sum(), dtype=np.int64)
        known = [measured((), count, Budgets.of(epsilon, choosing=True).total, noise)]
        number = how_many(epsilon, universe, int(known[0].counts), len(first))
        budgets = Budgets.of(epsilon, choosing=number > len(first))
        each = budgets.choice / (number - len(first)) if number > len(first) else Fraction(0)
        codes = choose(source.counts, first, number, each, noise)
        choice = Choice(codes, (*(None,) * len(first), *(each,) * (number - len(first))))
        tables = layout.of_chosen(number, budgets.tables, on_places(wanted, codes))
    return choice, [*known, *_tables(source, choice.codes, tables, noise)]


def _tables(source: Sets, codes: Ints, tables: layout.Layout, noise: SelectionNoise) -> list[Measured]:
    patterns, number = source.patterns(codes), len(codes)
    found = []
    for places, epsilon in tables:
        own = restricted(patterns, places, number)
        counts = np.bincount(own, weights=source.records, minlength=1 << len(places)).astype(np.int64)
        found.append(measured(places, counts.reshape((2,) * len(places)), epsilon, noise))
    return found
