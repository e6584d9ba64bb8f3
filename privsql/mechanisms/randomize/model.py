"""Sub-tables and what their perturbation costs: counts in, exact public parameters out.

A sub-table T_j with counts c (m,) over the values of the whole table has the domain SA_j = {x : c_x > 0} of size m_j,
rho1_j = max over protected x of c_x/|T_j|, and amplification

    gamma_j = rho2 (1 - rho1_j) / (rho1_j (1 - rho2)).

A value stays with probability gamma_j q_j and becomes any given other value of SA_j with q_j = 1/(m_j - 1 + gamma_j)
(Chaytor and Wang, equations 4, 9 and 10). Its error bound is

    eps_j = a/sqrt(|T_j|) (m_j/(gamma_j - 1) + 1),   a = 2 sqrt(ln(2/delta))   (equation 11),

and a partition is judged by sum_j (|T_j|/n) eps_j (equation 12).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from privsql.errors import InfeasibleError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

MOST_WEIGHT = 2**62  # of one record's choices: they are drawn as one 64-bit integer
CLOSE = 1e-12  # rho2 - rho1_j that doubles do not tell from none
GRID = 2**20  # to which an amplification is rounded down where its own terms are too long


@dataclass(frozen=True)
class Problem:
    """``counts`` (m,) records per value, ``protected`` (m,): values of SA', and the posterior bound."""

    counts: Ints
    protected: Mask
    rho2: Fraction
    delta: Fraction = Fraction(1, 20)

    @property
    def records(self) -> int:
        """N."""
        return int(self.counts.sum())

    @cached_property
    def scale(self) -> float:
        """a/n: what turns sqrt(|T_j|) (m_j/(gamma_j - 1) + 1) into a summand of the bound."""
        return 2 * float(np.sqrt(np.log(2 / float(self.delta)))) / self.records

    def costs(self, sizes: Ints, domains: Ints, highest: Ints) -> Floats:
        """(|T_j|/n) eps_j of sub-tables by |T_j|, m_j and their largest protected count; inf where rho1_j >= rho2.

        m/(gamma - 1) = m rho1 (1 - rho2)/(rho2 - rho1), written with counts so that no two close numbers are divided.
        """
        room = self._room(sizes, highest)
        with np.errstate(divide="ignore", invalid="ignore"):
            cost = self.scale * np.sqrt(sizes) * (domains * (highest * float(1 - self.rho2)) / room + 1)
        return np.asarray(np.where(room > 0, cost, np.inf))

    def _room(self, sizes: Ints, highest: Ints) -> Floats:
        """(rho2 - rho1_j) |T_j|; 0 where doubles can't tell that it is positive."""
        room = float(self.rho2) * sizes - highest
        return np.asarray(np.where(room > CLOSE * sizes, room, 0.0))

    def cost(self, parts: Ints) -> Floats:
        """(|T_j|/n) eps_j of every row of ``parts`` (k, m)."""
        return self.costs(parts.sum(axis=1), (parts > 0).sum(axis=1), self._highest(parts))

    def costs_of(self, parts: Ints) -> Floats:
        """``cost`` and the summed variance of equation 7 over the values of each row of ``parts`` (k, m): (k, 2).

        For small frequencies |T_j| m_j q (1 - q)/p^2 / n^2 = |T_j| m_j (m_j - 2 + gamma)/(gamma - 1)^2 / n^2.
        """
        sizes, domains, highest = parts.sum(axis=1), (parts > 0).sum(axis=1), self._highest(parts)
        room = self._room(sizes, highest)
        with np.errstate(divide="ignore", invalid="ignore"):
            excess = room / (highest * float(1 - self.rho2))  # gamma - 1
            variance = sizes * domains * (domains - 1 + excess) / excess**2 / self.records**2
        return np.stack((self.costs(sizes, domains, highest), np.where(room > 0, variance, np.inf)), axis=1)

    def _highest(self, parts: Ints) -> Ints:
        """Largest count of a protected value in every row (k,)."""
        return np.asarray(np.where(self.protected, parts, 0).max(axis=1, initial=0))


@dataclass(frozen=True)
class SubTable:
    """The public parameters of a sub-table: |T_j|, m_j, rho1_j and gamma_j."""

    records: int
    size: int
    rho1: Fraction
    gamma: Fraction

    @property
    def weight(self) -> int:
        """Number of equally likely choices for a record: (m_j - 1) b + a for gamma_j = a/b, a of them to stay."""
        return (self.size - 1) * self.gamma.denominator + self.gamma.numerator

    def error(self, n: int, delta: Fraction) -> float:
        """(|T_j|/n) eps_j."""
        scale = 2 * sqrt(log(2 / float(delta)))
        return scale * sqrt(self.records) / n * float(self.size / (self.gamma - 1) + 1)

    @property
    def retention(self) -> Fraction:
        """p_j = (gamma_j - 1)/(m_j - 1 + gamma_j)."""
        return (self.gamma - 1) / (self.size - 1 + self.gamma)

    @property
    def replacement(self) -> Fraction:
        """q_j = 1/(m_j - 1 + gamma_j)."""
        return 1 / (self.size - 1 + self.gamma)


@dataclass(frozen=True)
class Partition:
    """``parts`` (k, m): records of every value in every sub-table; ``groups`` the initial groups they were made of.

    ``optimal``: whether no union of the initial groups has a smaller bound. ``united``: the initial groups (t_j, m) of
    every sub-table; none of the whole table.
    """

    parts: Ints
    bound: float
    groups: int
    optimal: bool
    united: tuple[Ints, ...] = ()


def amplification(rho1: Fraction, rho2: Fraction) -> Fraction:
    """The largest gamma for which a prior of at most rho1 gives a posterior of at most rho2 (equation 6)."""
    return rho2 * (1 - rho1) / (rho1 * (1 - rho2))


def subtable(problem: Problem, part: Ints) -> SubTable:
    """Public parameters of a sub-table with counts ``part`` (m,), exact.

    An amplification with so many digits that a record's choice would not fit 64 bits is rounded down, which only adds
    privacy. Raises ``ValueError`` where no perturbation meets the bound, ``InfeasibleError`` where
    what is left can't be drawn.
    """
    records, size = int(part.sum()), int((part > 0).sum())
    rho1 = Fraction(int(part[problem.protected].max(initial=0)), records)
    if not 0 < rho1 < problem.rho2:
        raise ValueError(f"a sub-table has rho1 = {rho1}, which is not between 0 and rho2 = {problem.rho2}")
    gamma = amplification(rho1, problem.rho2)
    found = SubTable(records, size, rho1, gamma)
    if found.weight >= MOST_WEIGHT:
        found = SubTable(records, size, rho1, Fraction(int(gamma * GRID), GRID))
    if found.gamma <= 1 or found.weight >= MOST_WEIGHT:
        raise InfeasibleError(
            f"rho2 = {problem.rho2} leaves an amplification of {float(gamma):g} over a prior of {float(rho1):g}, which "
            "can't be drawn exactly; choose another rho2, with fewer digits"
        )
    return found
