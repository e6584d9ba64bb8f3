"""Choose items, measure views with noise, and publish them with synthetic sets."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from privsql.dp_random import TableNoise, opendp_version, table_noise_for
from privsql.engine.sqlfiles import all_rows, fill, temp_table
from privsql.errors import InfeasibleError
from privsql.exact import fraction_text
from privsql.mechanisms.dp.noisy_tables import Ints, LeastSquares, NoisyTable, measure_table
from privsql.mechanisms.dp.parameters import find_law, total_budget
from privsql.mechanisms.dp.tables import write_noisy_tables, write_release_table
from privsql.mechanisms.views.item_sets import WeightedSets, read_sets
from privsql.mechanisms.views.model import fit_population
from privsql.mechanisms.views.parameters import TINY_UNIVERSE, SetValued, ViewFacts
from privsql.mechanisms.views.plan import TOTAL, declared_sets, due_choices, due_tables, named_first
from privsql.mechanisms.views.tables import (
    CHOSEN,
    SETS,
    UNIVERSE,
    ItemChoice,
    choice_table,
    list_view_facts,
    name_columns,
    sets_table,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Relations
    from privsql.keyed_random import Key
    from privsql.model.records import Records


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


def publish_views(db: Relations, source: Records, params: SetValued, key: Key) -> ViewFacts:
    """Make the tables of a release in database ``release``; returns the facts."""
    noise = table_noise_for(key, find_law(params))
    wanted = declared_sets(params, source.labels)
    sets = read_sets(source)
    source.drop_relations()
    choice, measured = measure_views(sets, params, wanted, noise)
    fitted = LeastSquares(measured, [2] * len(choice.codes))
    _require_information(fitted, params)
    written = _write_views(db, source, choice, measured, fit_population(fitted))
    facts = list_view_facts(params, fitted, len(source.labels), written)
    return ViewFacts(**facts, noise=noise.origin, opendp=opendp_version())


def _require_information(fitted: LeastSquares, params: SetValued) -> None:
    """``InfeasibleError`` where numbers of records with an item are noise, unless that is wanted."""
    items, having = range(len(fitted.sizes)), np.array([0.0, 1.0])
    alone = np.sqrt([fitted.sum_variance((place,), having) for place in items])
    total = max(fitted.total, 0.0)
    if alone.mean() > total and not params.allow_empty:
        raise InfeasibleError(
            f"the counts would be noise: that of the records with an item has a standard error of {alone.mean():,.0f} "
            "on average, too large for the records that there are; a larger epsilon or fewer items would help, and "
            f"mechanism.allow_empty = true publishes it anyway; epsilon {fraction_text(params.epsilon)} was drawn and "
            "is spent"
        )


def _write_views(
    db: Relations, source: Records, choice: ItemChoice, measured: list[NoisyTable], population: Any
) -> int:
    """The tables of a release; how many sets its synthetic records have."""
    universe = temp_table("universe")
    items = db.arrow(all_rows(universe).order_by("code"))["item"].combine_chunks()
    sets = sets_table(population, choice, items)
    labels = [source.labels[code] for code in choice.codes.tolist()]
    fitted = fill("setvalued/fitted", {"given": temp_table("given"), **name_columns(source.roles, "weight")})
    write_release_table(db, SETS, sets, fitted, title="Writing the sets")
    chosen = fill("setvalued/measured", {"given": temp_table("given"), "universe": universe})
    write_release_table(db, CHOSEN, choice_table(choice, measured[0].law), chosen)
    write_noisy_tables(db, measured, labels)
    db.create_table(UNIVERSE, fill("setvalued/items", {"universe": universe}), into="release")
    return int(sets.num_rows)
