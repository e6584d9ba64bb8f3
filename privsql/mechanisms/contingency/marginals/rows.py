"""Rows with weights that give about a release's estimates, for any SQL tool: made of the published tables alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.noisytables.model import strongest

if TYPE_CHECKING:
    from privsql.mechanisms.noisytables.measured import Clique, Ints, Reals
    from privsql.mechanisms.noisytables.model import Model

MOST = 100_000  # rows
STEPS, FIT = 200, 8  # pairs that weights are fitted to, all in all, and each of them
AT_ONCE = 4_000_000  # chances that are looked at together
FARTHEST = 10.0  # times that a weight changes in one step


def rows(model: Model, draw: np.random.Generator) -> tuple[Ints, Reals]:
    """Codes of R different rows, (R, d), in order, and their weights.

    Values are drawn along the tree of the strongest pairs; then weights are fitted to all pairs of columns in turn
    (raking), and to the single columns.
    """
    number = int(min(max(model.total, 0.0), MOST))
    codes, weights = _merged(_drawn(model, number, draw))
    weights *= model.total / max(number, 1)
    pairs = model.pairs
    singles: dict[Clique, Reals] = {(i,): table for i, table in enumerate(model.singles)}
    for _ in range(min(FIT, max(1, STEPS // max(1, len(pairs))))):
        for clique, table in (pairs | singles).items():
            flat = np.ravel_multi_index(tuple(codes[:, i] for i in clique), table.shape)
            now = np.bincount(flat, weights=weights, minlength=table.size)
            scale = np.divide(table.reshape(-1), now, out=np.ones(table.size), where=now > 0)
            weights = weights * np.clip(scale, 1 / FARTHEST, FARTHEST)[flat]
    return codes, weights * (model.total / weights.sum() if len(weights) else 1.0)


def distance(model: Model, codes: Ints, weights: Reals) -> float:
    """Mean total variation between the rows' tables of two columns (or of one, where there is one) and the model's."""
    pairs: list[Clique] = [*model.pairs] or [(0,)]
    far = []
    for clique in pairs:
        table = model.table(clique)
        flat = np.ravel_multi_index(tuple(codes[:, i] for i in clique), table.shape)
        now = np.bincount(flat, weights=weights, minlength=table.size)
        far.append(float(np.abs(now - table.reshape(-1)).sum()) / 2 / max(model.total, 1.0))
    return sum(far) / len(far)


def _drawn(model: Model, number: int, draw: np.random.Generator) -> Ints:
    tree = strongest(model.pairs, len(model.sizes))
    codes = np.full((number, len(model.sizes)), -1, dtype=np.int64)
    for start in range(len(model.sizes)):
        if number and codes[0, start] < 0:
            codes[:, start] = _by_chance(model.singles[start][None, :], np.zeros(number, dtype=np.int64), draw)
            edge = [start]
            while edge:
                here = edge.pop()
                for there in sorted(one for one in tree[here] if codes[0, one] < 0):
                    table = model.table((min(here, there), max(here, there)))
                    codes[:, there] = _by_chance(table if here < there else table.T, codes[:, here], draw)
                    edge.append(there)
    return codes


def _by_chance(table: Reals, given: Ints, draw: np.random.Generator) -> Ints:
    """For each row of ``given``, which names a row of the table, a column of it by the chances that the row has."""
    sums = np.cumsum(table, axis=1)
    uniform = draw.random(len(given)) * sums[given, -1]
    step = max(1, AT_ONCE // table.shape[1])
    found = [
        (sums[given[at : at + step]] <= uniform[at : at + step, None]).sum(axis=1) for at in range(0, len(given), step)
    ]
    chosen: Ints = np.minimum(np.concatenate([given[:0], *found]), table.shape[1] - 1)
    return chosen


def _merged(codes: Ints) -> tuple[Ints, Reals]:
    """The different rows, in order, and how often each was drawn."""
    different, times = np.unique(codes, axis=0, return_counts=True)
    return different, times.astype(np.float64)
