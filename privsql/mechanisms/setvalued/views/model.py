"""A table of all patterns that a population can have and that fits what was measured, and estimates that lean on it.

1. The table of largest entropy whose views are those of least squares, moved to the nearest without negative cells:
   iterative proportional fitting from a table of equal cells.
2. Where all patterns were counted, each cell x of that table mu moves towards its own count y, by V/(V + s^2) with
   V = a mu + b mu^2: what a count says that the views do not. (a, b) are the moments of (y - mu)^2 - s^2 over all
   cells, by non-negative least squares. The result is fitted to the views once more, and at the end to the numbers of
   records with each item: to have no negative cells a view adds to rare items.
3. An estimate takes each parity between that table's and the least-squares one, by r_q = V_k/(V_k + v_q), where V_k is
   by how much parities of k items differ beyond their noise. So what was measured well stays as it was, what was not
   is the model's, and as every answer is a sum over one table, answers add up, as long as each lies no further than
   ``bounds.LIMIT`` standard errors from that of least squares.

Nothing here looks at anything but the published tables. Intervals do not rest on it: they are those of least squares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.noisytables.nonnegative import nearest
from privsql.mechanisms.noisytables.shrinkage import moments
from privsql.mechanisms.setvalued.views.patterns import among, cells, sizes, transformed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.noisytables.measured import Measured, Reals
    from privsql.mechanisms.setvalued.views.patterns import Codes
    from privsql.mechanisms.setvalued.views.squares import Squares

ROUNDS = 4  # of proportional fitting to views
LAST_ROUNDS = 2  # to single items
LEAST = 0.01  # of a cell of the views' table stays, whatever its count says
OVER = 0.1  # a cell's error is weighed as if V were mu + OVER mu^2
TINY = 1e-300
Margins = list[tuple["Codes", "Reals"]]


def table(squares: Squares) -> Reals:
    """The population's table (2^m,), non-negative."""
    items, total = squares.items, max(squares.total, 0.0)
    whole = [one for one in squares.tables if len(one.columns) == items]
    views = [one.columns for one in squares.tables if 0 < len(one.columns) < items]
    if not views:
        return nearest(transformed(squares.value) / (1 << items), total)
    margins = _margins(squares, _largest(views))
    found = _fit(np.full(1 << items, total / (1 << items)), margins, ROUNDS)
    if whole:
        found = _fit(np.maximum(_moved(found, whole[0]), LEAST * found), margins, ROUNDS)
    return _fit_items(found, squares)


def spectrum(squares: Squares, population: Reals) -> tuple[Reals, Reals]:
    """Parities (2^m,) between those of least squares and those of the population's table (step 3), and what they keep.

    What they keep of the variance v_q of least squares: 1 - (z - found)^2/v_q on average over the parities of k items.
    For whatever is fitted to noisy values, by a projection or by the best shrinkage, what it is off and what it leaves
    of them add up to their noise.
    """
    model, order = transformed(population), sizes(squares.items)
    told = squares.precision > 0
    weights, number = squares.precision[told] ** 2, squares.items + 1

    def mean(parts: Reals) -> Reals:
        sums, of_all = (np.bincount(order[told], weights=one, minlength=number) for one in (parts * weights, weights))
        return np.divide(sums, of_all, out=np.zeros(number), where=of_all > 0)

    variance, far = 1 / squares.precision[told], (squares.value - model)[told] ** 2
    ratio = np.maximum(mean(far - variance), 0.0)[order] * squares.precision
    part = ratio / (ratio + 1)
    left = mean((1 - part[told]) ** 2 * far) / np.maximum(mean(variance), TINY)
    return model + part * (squares.value - model), np.clip(1 - left, 0.0, 1.0)[order]


def _largest(views: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The views that are not inside another one."""
    return [one for one in dict.fromkeys(views) if not any(set(one) < set(other) for other in views)]


def _margins(squares: Squares, views: Sequence[tuple[int, ...]]) -> Margins:
    """The cells of each view that all patterns lie in, and the nearest table without negative cells to its own."""
    return [(cells(view, squares.items), _margin(squares, view)) for view in views]


def _margin(squares: Squares, view: tuple[int, ...]) -> Reals:
    own = squares.value[among(view, squares.items)]
    return nearest(transformed(own) / len(own), max(squares.total, 0.0))


def _fit(start: Reals, margins: Margins, rounds: int) -> Reals:
    found = start.copy()
    for _ in range(rounds):
        for own, wanted in margins:
            now = np.bincount(own, weights=found, minlength=len(wanted))
            found *= np.divide(wanted, now, out=np.zeros_like(wanted), where=now > 0)[own]
    return found


def _fit_items(start: Reals, squares: Squares) -> Reals:
    """The same to the number of records with each item."""
    found = start.copy()
    for _ in range(LAST_ROUNDS):
        for place in range(squares.items):
            halves = found.reshape(1 << place, 2, -1)  # without the item, and with it
            now, wanted = halves.sum(axis=(0, 2)), _margin(squares, (place,))
            halves *= np.divide(wanted, now, out=np.zeros(2), where=now > 0)[None, :, None]
    return found


def _moved(mean: Reals, counted: Measured) -> Reals:
    """The cells, each between its ``mean`` and its count."""
    counts, noise = counted.counts.reshape(-1).astype(np.float64), counted.variance
    weight = 1 / (noise + mean + OVER * mean**2)
    a, b = moments(weight * mean, weight * mean**2, weight * ((counts - mean) ** 2 - noise))
    own = a * mean + b * mean**2
    return mean + own / (own + noise) * (counts - mean) if noise else counts
