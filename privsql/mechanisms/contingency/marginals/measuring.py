"""The private part: true tables are counted here, and leave with noise.

Every table of one record more or less differs in one cell by one, so noise of scale 1/e spends e, and all tables and
choices together spend epsilon. A choice looks at how many records lie otherwise than the published tables make likely:
the L1 distance of a true table from the model's, whose cells are rounded, so that scores are whole numbers and one
record changes each by 1 at most, some up and some down: the choice spends twice what one between counts would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.contingency.marginals.cliques import Rounds
from privsql.mechanisms.noisytables.measured import measured
from privsql.mechanisms.noisytables.model import Model

if TYPE_CHECKING:
    from privsql.dpnoise import SelectionNoise
    from privsql.mechanisms.contingency.marginals.cliques import Rule
    from privsql.mechanisms.noisytables.measured import Clique, Ints, Measured


def measure(codes: Ints, records: Ints, rule: Rule, noise: SelectionNoise) -> list[Measured]:
    """All tables of a source: ``codes`` (n, d) of its different cells, ``records`` (n,) of each.

    epsilon-differentially private for one record added or removed.
    """

    def true(clique: Clique) -> Ints:
        shape = tuple(rule.sizes[i] for i in clique)
        flat = np.ravel_multi_index(tuple(codes[:, i] for i in clique), shape)
        counted = np.bincount(flat, weights=records, minlength=rule.cells(clique))  # exact: below 2^53
        return counted.astype(np.int64).reshape(shape)

    tables = [measured(clique, true(clique), spent, noise) for clique, spent, _ in rule.fixed()]
    rest = rule.rest(tables)
    if not isinstance(rest, Rounds):
        return tables + [measured(clique, true(clique), spent, noise) for clique, spent, _ in rest]
    counts = {clique: true(clique) for clique in rest.candidates}
    for _ in range(rest.number):
        clique = _worst(Model(tables, rule.sizes), counts, rest, noise)
        tables.append(measured(clique, counts.pop(clique), rest.measuring, noise, rest.choosing))
    return tables


def _worst(model: Model, counts: dict[Clique, Ints], rounds: Rounds, noise: SelectionNoise) -> Clique:
    """The pair that the model tells least of, less the noise that measuring it would bring, chosen privately."""
    cliques = list(counts)
    far = [int(np.abs(counts[one] - np.rint(model.table(one)).astype(np.int64)).sum()) for one in cliques]
    cost = [counts[one].size * rounds.measuring.denominator // rounds.measuring.numerator for one in cliques]
    scores = np.array(far, dtype=np.int64) - np.array(cost, dtype=np.int64)
    return cliques[noise.best(scores, rounds.choosing, monotonic=False)]
