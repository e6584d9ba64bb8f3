"""Choose items, measure views with noise, and publish them with synthetic sets."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

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
    list_choices,
    list_facts,
    list_synthetic_sets,
    name_columns,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Relations
    from privsql.keyed_random import Key
    from privsql.model.records import Records


def choose(counts: Sequence[float], declared: Sequence[int], number: int, budget: Fraction, noise: TableNoise) -> Ints:
    """Return the codes of ``number`` measured items in order: those declared, then those chosen at ``budget`` each."""
    scores, chosen = np.array(counts, dtype=np.int64), list(declared)
    left = np.ones(len(counts), dtype=bool)
    left[chosen] = False
    while len(chosen) < number:
        candidates = np.flatnonzero(left)
        chosen.append(int(candidates[noise.choose_best(scores[candidates], budget)]))
        left[chosen[-1]] = False
    return np.array(chosen, dtype=np.int64)


def measure_views(
    source: WeightedSets, params: SetValued, wanted: Sequence[tuple[int, ...]], noise: TableNoise
) -> tuple[ItemChoice, list[NoisyTable]]:
    """Return what is measured of a source, and the tables with noise. Epsilon-differentially private.

    A record lies in one cell of each table, so a table spends its budget; each choice spends its own. Layouts and
    numbers follow from public parameters and from what was measured before.
    """
    universe, law, measured = source.items, find_law(params), list[NoisyTable]()
    if universe <= TINY_UNIVERSE:
        choice = ItemChoice(np.arange(universe, dtype=np.int64), (None,) * universe)
    else:
        first, count = named_first(wanted), np.array(source.weights.sum(), dtype=np.int64)
        measured = [measure_table((), count, TOTAL * total_budget(params), noise, law=law)]
        budgets = due_choices(params, universe, len(first), int(measured[0].counts))
        codes = choose(source.item_weights.tolist(), first, len(budgets), budgets[-1] or Fraction(0), noise)
        choice = ItemChoice(codes, budgets)
    counts = source.count_patterns(choice.codes)
    for places, epsilon, _ in due_tables(params, universe, choice, wanted)[len(measured) :]:
        others = tuple(place for place in range(len(choice.codes)) if place not in places)
        measured.append(measure_table(places, counts.sum(axis=others), epsilon, noise, law=law))
    return choice, measured


def publish_views(db: Relations, source: Records, params: SetValued, key: Key) -> ViewFacts:
    """Make the tables of a release in database ``release``, and return its facts."""
    law = find_law(params)
    noise, wanted, sets = table_noise_for(key, law), declared_sets(params, source.labels), read_sets(source)
    source.drop_relations()
    choice, measured = measure_views(sets, params, wanted, noise)
    fitted = LeastSquares(measured, [2] * len(choice.codes))
    having = np.array([0.0, 1.0])
    error = np.sqrt([fitted.sum_variance((place,), having) for place in range(len(choice.codes))]).mean()
    if error > max(fitted.total, 0.0) and not params.allow_empty:
        raise InfeasibleError(
            f"the counts would be noise: that of the records with an item has a standard error of {error:,.0f} "
            "on average, too large for the records that there are; a larger epsilon or fewer items would help, and "
            f"mechanism.allow_empty = true publishes it anyway; epsilon {fraction_text(params.epsilon)} was drawn and "
            "is spent"
        )
    universe, given = temp_table("universe"), temp_table("given")
    items = db.arrow(all_rows(universe).order_by("code"))["item"].combine_chunks()
    synthetic = list_synthetic_sets(fit_population(fitted), choice, items)
    as_published = fill("setvalued/fitted", {"given": given, **name_columns(source.roles, "weight")})
    write_release_table(db, SETS, synthetic, as_published, title="Writing the sets")
    chosen = fill("setvalued/measured", {"given": given, "universe": universe})
    write_release_table(db, CHOSEN, list_choices(choice, law), chosen)
    write_noisy_tables(db, measured, [source.labels[code] for code in choice.codes.tolist()])
    db.create_table(UNIVERSE, fill("setvalued/items", {"universe": universe}), into="release")
    facts = list_facts(params, fitted, len(source.labels), synthetic.num_rows)
    return ViewFacts(**facts, noise=noise.origin, opendp=opendp_version())
