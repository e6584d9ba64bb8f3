"""Count patterns of items with noise, and publish them with synthetic item sets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from privsql.dp_random import TableNoise, opendp_version, table_noise_for
from privsql.engine.sqlfiles import all_rows, fill, temp_table
from privsql.errors import InfeasibleError
from privsql.exact import fraction_text
from privsql.mechanisms.dp.noisy_tables import Ints, LeastSquares, NoisyTable, measure_table
from privsql.mechanisms.dp.parameters import find_law
from privsql.mechanisms.dp.tables import write_noisy_tables, write_release_table
from privsql.mechanisms.views.item_counts import ItemCounts, count_lengths, measure_items
from privsql.mechanisms.views.item_sets import WeightedSets, read_sets
from privsql.mechanisms.views.model import fit_population
from privsql.mechanisms.views.parameters import TINY_UNIVERSE, SetValued, ViewFacts
from privsql.mechanisms.views.plan import (
    choose_items,
    declared_sets,
    due_lengths,
    due_tables,
    find_rule,
    named_first,
)
from privsql.mechanisms.views.tables import (
    CHOSEN,
    COUNTED,
    SETS,
    UNIVERSE,
    column_sizes,
    list_chosen,
    list_counts,
    list_facts,
    list_synthetic_sets,
    name_columns,
    name_lengths,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Relations
    from privsql.keyed_random import Key
    from privsql.model.records import Records


@dataclass(frozen=True)
class Measured:
    """The noisy counts that a release is made of.

    Attributes:
        codes: The codes of the m items of the noisy tables.
        tables: The noisy tables.
        counts: The noisy counts of all items, if the universe has more than ``TINY_UNIVERSE``; else None.
    """

    codes: Ints
    tables: list[NoisyTable]
    counts: ItemCounts | None


def measure_views(
    source: WeightedSets,
    params: SetValued,
    wanted: Sequence[tuple[int, ...]],
    noise: TableNoise,
    draw: np.random.Generator,
) -> Measured:
    """Count in noisy tables which of a few items records have, epsilon-differentially private.

    A record lies in one cell of each table, so each table spends its budget once; counts of items spend theirs. What is
    counted follows from public parameters and from figures that were published before.

    Args:
        source: The records, as item sets with their numbers.
        params: The parameters, with the budget.
        wanted: The codes of the item sets that the publisher declared.
        noise: The generator of noise.
        draw: The generator that chooses the items that long records keep.
    """
    universe, law, counts, tables = source.items, find_law(params), None, list[NoisyTable]()
    codes: list[int] = list(range(universe))
    if universe > TINY_UNIVERSE:
        for _ in range(2):
            due = due_lengths(params, universe, 0, tables[0] if tables else None)
            for columns, budget, _ in due[len(tables) :]:
                tables.append(measure_table(columns, count_lengths(source), budget, noise, law=law))
        counts = measure_items(source, tables, find_rule(tables, params, universe), noise, draw)
        codes = choose_items(counts, params, named_first(wanted))
        tables = [replace(one, columns=(len(codes),)) for one in tables]
    patterns = source.count_patterns(np.array(codes, dtype=np.int64))
    for places, epsilon, _ in due_tables(params, universe, codes, wanted, counts)[len(tables) :]:
        others = tuple(place for place in range(len(codes)) if place not in places)
        tables.append(measure_table(places, patterns.sum(axis=others), epsilon, noise, law=law))
    return Measured(np.array(codes, dtype=np.int64), tables, counts)


def publish_views(db: Relations, source: Records, params: SetValued, key: Key) -> ViewFacts:
    """Publish a release of noisy tables of items into database ``release``, and return its facts for the manifest."""
    law = find_law(params)
    noise, wanted, sets = table_noise_for(key, law), declared_sets(params, source.labels), read_sets(source)
    source.drop_relations()
    draw = key.random_generator("setvalued", "cut", len(source.labels), fraction_text(params.epsilon))
    found = measure_views(sets, params, wanted, noise, draw)
    measured = len(found.codes)
    fitted = LeastSquares(found.tables, column_sizes(measured, found.tables))
    having = np.array([0.0, 1.0])
    variances = [fitted.sum_variance((place,), having) for place in range(measured)]
    if found.counts is not None:
        variances = np.minimum(variances, found.counts.variances[found.codes]).tolist()
    error = np.sqrt(variances).mean()
    if error > max(fitted.total, 0.0) and not params.allow_empty:
        raise InfeasibleError(
            f"the counts would be noise: that of the records with an item has a standard error of {error:,.0f} "
            "on average, too large for the records that there are; a larger epsilon or fewer items would help, and "
            f"mechanism.allow_empty = true publishes it anyway; epsilon {fraction_text(params.epsilon)} was drawn and "
            "is spent"
        )
    universe, given = temp_table("universe"), temp_table("given")
    items = db.arrow(all_rows(universe).order_by("code"))["item"].combine_chunks()
    synthetic = list_synthetic_sets(fit_population(fitted, measured), found.codes, items)
    as_published = fill("setvalued/fitted", {"given": given, **name_columns(source.roles, "weight")})
    write_release_table(db, SETS, synthetic, as_published, title="Writing the sets")
    chosen = fill("setvalued/measured", {"given": given, "universe": universe})
    write_release_table(db, CHOSEN, list_chosen(found.codes), chosen)
    names = [source.labels[code] for code in found.codes.tolist()]
    write_noisy_tables(db, found.tables, [*names, name_lengths(names)])
    write_release_table(db, COUNTED, list_counts(found.counts), title="Writing the counts of items")
    db.create_table(UNIVERSE, fill("setvalued/items", {"universe": universe}), into="release")
    facts = list_facts(params, fitted, found.counts, len(source.labels), measured, synthetic.num_rows)
    return ViewFacts(**facts, noise=noise.origin, opendp=opendp_version())
