"""The public parameters of a randomized release as arrays, and the channel that they make.

Cell (j, x): value x of sub-table j. The published records with cell (j, y) are seen; unknown is who had which value.
A record of value i goes to sub-table j with c_ij/o_i (which of them is random) and becomes y there with P_j(i, y), so

    M[i, (j, y)] = c_ij/o_i P_j(i, y),

the perturbation matrices stacked over the sub-tables. Each record adds one unit vector, so S = diag(M^T o). The counts
c are not published: they are themselves estimated, per sub-table and from all its records, with a flat prior.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from privsql.answers.channel import Channel, Floats, Observation
from privsql.answers.interval import within
from privsql.answers.reconstruct import reconstruct
from privsql.engine.sqlfiles import all_rows, table
from privsql.errors import EngineError
from privsql.model.arrays import zeros

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from privsql.engine.database import Relations

Ints = NDArray[np.int64]
TABLES = (table("privsql_subtables"), table("privsql_domains"), table("privsql_values"))


@dataclass(frozen=True)
class Public:
    """``records`` |T_j|, ``gamma``, ``rho1`` (k,); ``own`` (cells,) sub-table and ``code`` (cells,) value of each cell;
    ``protected`` (m,); ``totals`` (cells,) published records of each cell.
    """

    records: Ints
    gamma: Floats
    rho1: Floats
    own: Ints
    code: Ints
    protected: NDArray[np.bool_]
    totals: Floats

    def seen(self, rows: pa.Table) -> Public:
        """With the totals of ``sql/randomize/observed.sql`` (place, pairs)."""
        totals = np.bincount(rows["place"].to_numpy(), rows["pairs"].to_numpy(), minlength=len(self.own))
        return replace(self, totals=totals.astype(np.float64))

    @cached_property
    def sizes(self) -> Ints:
        """m_j (k,)."""
        return np.bincount(self.own, minlength=len(self.records))

    @property
    def retention(self) -> Floats:
        """p_j (k,)."""
        return np.asarray((self.gamma - 1) / (self.sizes - 1 + self.gamma))

    @property
    def replacement(self) -> Floats:
        """q_j (k,)."""
        return np.asarray(1 / (self.sizes - 1 + self.gamma))

    @cached_property
    def most(self) -> Floats:
        """Records that each cell can have at most (cells,): rho1_j |T_j| if protected, else what the others leave."""
        ceiling = np.rint(self.rho1 * self.records)[self.own]
        others = (self.records - self.sizes + 1)[self.own]
        return np.asarray(np.where(self.protected[self.code], np.minimum(ceiling, others), others).astype(np.float64))

    @cached_property
    def least(self) -> Floats:
        """Records that each cell has at least (cells,): 1, or what the others can't hold."""
        held = np.bincount(self.own, self.most)[self.own] - self.most
        return np.maximum(self.records[self.own] - held, 1)

    def by_value(self, cells: Floats) -> Floats:
        """Sums over the sub-tables (m,)."""
        return np.asarray(np.bincount(self.code, cells, minlength=len(self.protected)))

    def perturbation(self, j: int) -> Floats:
        """P_j (m_j, m_j): q_j everywhere and p_j more on the diagonal."""
        size = int(self.sizes[j])
        return np.asarray(np.eye(size) * self.retention[j] + self.replacement[j])

    @cached_property
    def estimated(self) -> tuple[Floats, Floats]:
        """Estimates of c (cells,) and their standard errors, at most half of the range in which c must lie."""
        values, errors = np.zeros(len(self.own)), np.zeros(len(self.own))
        for j in range(len(self.records)):
            cells = np.flatnonzero(self.own == j)
            matrix, total = self.perturbation(j), np.array([float(self.records[j])])
            flat = np.full(len(cells), total[0] / len(cells))
            channel = Channel(matrix, np.diag(flat @ matrix), flat)
            seen = Observation(self.totals[cells][None], total, total, total, np.ones(1))
            found = reconstruct(channel, seen, np.eye(len(cells)))
            values[cells] = within(found.values, total, self.most[cells][None], flat)[0]
            errors[cells] = found.std_error[0]
        return np.maximum(values, self.least), np.minimum(errors, (self.most - self.least) / 2)

    @cached_property
    def channel(self) -> Channel:
        """M (m, cells), S and the estimated o (m,)."""
        counts = np.maximum(self.estimated[0], 1e-6)
        records = self.by_value(counts)
        mean = zeros(len(records), len(counts))
        for j in range(len(self.records)):
            cells = np.flatnonzero(self.own == j)
            share = counts[cells] / records[self.code[cells]]
            mean[np.ix_(self.code[cells], cells)] = share[:, None] * self.perturbation(j)
        return Channel(mean, np.diag(records @ mean), records)


def public(db: Relations, named: Sequence[exp.Table] = TABLES) -> Public:
    """The parameters of an open release, its totals still 0; ``named``: where its tables are.

    ``EngineError`` unless these are parameters: nothing is computed from others.
    """
    subtables, listed, coded = (db.rows(_ordered(relation)) for relation in named)
    _must(all(None not in row for rows in (subtables, listed) for row in rows), "an entry is NULL")
    _must([row[0] for row in subtables] == list(range(len(subtables))), "sub-tables are not numbered 0, 1, ..")
    _must([row[0] for row in listed] == list(range(len(listed))), "cells are not numbered 0, 1, ..")
    _must([row[0] for row in coded] == list(range(len(coded))), "values are not numbered 0, 1, ..")
    _must(all(0 <= own < len(subtables) for _, own, _ in listed), "a cell is in no sub-table")
    _must({own for _, own, _ in listed} == set(range(len(subtables))), "a sub-table has no cells")
    _must(all(0 <= code < len(coded) for _, _, code in listed), "a cell has no value")
    _must(len({(own, code) for _, own, code in listed}) == len(listed), "a sub-table has a value twice")
    _must(all(row[-1] is not None for row in coded), "a value is neither protected nor not")
    _must(all(row[1] > 0 and row[4] > 0 and row[6] > 0 for row in subtables), "a number is not positive")
    gamma = [float(Fraction(int(row[5]), int(row[6]))) for row in subtables]
    rho1 = [float(Fraction(int(row[3]), int(row[4]))) for row in subtables]
    _must(all(value > 1 for value in gamma), "a gamma is not above 1")
    _must(all(0 < value < 1 for value in rho1), "a rho1 is not between 0 and 1")
    cells = np.array(listed, dtype=np.int64)
    return Public(
        np.array([row[1] for row in subtables], dtype=np.int64),
        np.array(gamma),
        np.array(rho1),
        cells[:, 1],
        cells[:, 2],
        np.array([bool(row[-1]) for row in coded]),
        np.zeros(len(cells)),
    )


def _ordered(relation: exp.Table) -> exp.Query:
    return all_rows(relation).order_by(exp.Literal.number(1))


def _must(holds: bool, wrong: str) -> None:
    if not holds:
        raise EngineError(f"the release's parameters are damaged: {wrong}")
