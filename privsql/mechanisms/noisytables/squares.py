"""Least squares over noisy tables, in closed form.

Along every axis a table is written in an orthonormal basis whose first element is constant (the discrete cosine
transform; for two values it is that of Walsh and Hadamard). The coefficients whose axes tau are not constant are the
interaction of the columns tau, and different interactions never mix. Noise of variance s^2 in every cell of a clique
gamma is noise of variance s^2 in every coefficient. Summed over the columns of gamma that are not in tau, a table's
coefficient of tau grows by the square root of the number of cells that are summed, P, so a clique tells the one of
tau's own table with variance s^2 P. All cliques that hold tau tell the same coefficient: the average with weights
1/variance is the least-squares estimate, and v_tau = 1/(sum of weights) its variance. What is made of these is
consistent by construction.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, combinations
from math import prod, sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy.fft import dctn, idctn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from privsql.mechanisms.noisytables.measured import Clique, Measured, Reals


@dataclass(frozen=True)
class Squares:
    """``told``: by interaction tau its coefficients, an array of n_i - 1 along each axis, and their variance v_tau.

    ``sizes``: how many values each column has.
    """

    sizes: tuple[int, ...]
    told: Mapping[Clique, tuple[Reals, float]]

    def knows(self, columns: Clique) -> bool:
        """Whether some table told of all interactions among the columns."""
        return columns in self.told

    def table(self, columns: Clique) -> Reals:
        """The least-squares table of some columns; an interaction that no clique holds is taken to be 0."""
        coefficients = np.zeros(self._shape(columns))
        for tau, block, others in self._blocks(columns):
            if tau in self.told:
                coefficients[block] = self.told[tau][0].reshape(coefficients[block].shape) / sqrt(others)
        return np.asarray(idctn(coefficients, norm="ortho"))

    def variance(self, columns: Clique, weights: Reals) -> float:
        """Variance of the sum of the table's cells times ``weights``, an array of the table's shape.

        sum_tau v_tau |weights in tau|^2 / P: exact. An interaction that no clique holds adds nothing: it has no noise.
        """
        spectrum = np.square(dctn(weights, norm="ortho"))
        parts = ((tau, float(spectrum[block].sum()), others) for tau, block, others in self._blocks(columns))
        return sum(self.told[tau][1] * own / others for tau, own, others in parts if tau in self.told)

    def errors(self, columns: Clique, noise: np.random.Generator) -> Squares:
        """What the noise may have done to some columns and all interactions among them, as the variances have it."""
        among = [tau for tau, _, _ in self._blocks(columns) if tau in self.told]
        drawn = {
            tau: (sqrt(self.told[tau][1]) * noise.standard_normal(self.told[tau][0].shape), self.told[tau][1])
            for tau in among
        }
        return Squares(self.sizes, drawn)

    @property
    def total(self) -> float:
        """The estimated number of records."""
        return float(self.told[()][0])

    def _shape(self, columns: Clique) -> tuple[int, ...]:
        return tuple(self.sizes[i] for i in columns)

    def _blocks(self, columns: Clique) -> Iterator[tuple[Clique, tuple[slice | int, ...], int]]:
        return blocks(columns, self.sizes)


def blocks(columns: Clique, sizes: Sequence[int]) -> Iterator[tuple[Clique, tuple[slice | int, ...], int]]:
    """For each interaction tau of some columns where its coefficients lie, and over how many cells its table sums."""
    for tau in chain.from_iterable(combinations(columns, k) for k in range(len(columns) + 1)):
        block = tuple(slice(1, None) if i in tau else 0 for i in columns)
        yield tau, block, prod(sizes[i] for i in columns if i not in tau)


def fitted(tables: Iterable[Measured], sizes: Sequence[int]) -> Squares:
    """The least-squares estimate of all interactions that the tables hold."""
    sums: dict[Clique, tuple[Reals, float]] = {}
    for one in tables:
        coefficients = dctn(one.counts.astype(np.float64), norm="ortho")
        for tau, block, others in blocks(one.columns, sizes):
            found, precision = np.asarray(coefficients[block]) * sqrt(others), 1 / (one.variance * others)
            before, known = sums.get(tau, (np.zeros(found.shape), 0.0))
            sums[tau] = before + precision * found, known + precision
    return Squares(tuple(sizes), {tau: (total / known, 1 / known) for tau, (total, known) in sums.items()})
