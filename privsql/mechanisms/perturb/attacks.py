"""Attack perturbed releases: the view of a release that adversaries attack, and the list of adversaries."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.attacks import adversaries, suite
from privsql.attacks.scene import CHUNK, AttackView, Block, count_levels
from privsql.engine.sqlfiles import Holes, column, fill, same_columns, table, temp_table
from privsql.errors import GuaranteeError
from privsql.mechanisms.perturb.tables import PublicParameters, read_public

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.answers.channel import Channel
    from privsql.attacks.scene import Floats, Ints


class PerturbedView(AttackView):
    """The perturbed table and the public parameters of its sub-tables, as arrays for adversaries.

    A cell is a pair of a sub-table and one of its values.
    """

    records, part, independent = "perturbed", "sub_table", True
    stated = ("protected",)
    relations = ("rows", "chosen")

    def _more_columns(self) -> list[str]:
        return list(self.roles.sa_keys)

    def excess_share(self) -> float:
        """Return the share of the records in sub-tables whose parameters allow a posterior belief above rho2."""
        rho2 = Fraction(self.given.manifest.parameters["rho2"])
        result = []
        for row in self.read_table("privsql_subtables").to_pylist():
            rho1 = Fraction(int(row["rho1_numerator"]), int(row["rho1_denominator"]))
            gamma = Fraction(int(row["gamma_numerator"]), int(row["gamma_denominator"]))
            if gamma * rho1 > rho2 * (gamma * rho1 + 1 - rho1):
                result.append(int(row["sub_table"]))
        return float(np.isin(self.record_parts, result).mean())

    def canonical_orders(self) -> dict[str, tuple[exp.Table, list[str]]]:
        """Return the perturbed table and the columns by which its rows must be sorted.

        Rows in another order could reveal values. Other releases have a sensitive table here, too; a perturbed one has
        none.
        """
        return {self.records: (temp_table("a_records"), ["part", *self.roles.qi_keys, *self.roles.sa_keys])}

    def _attacked_filter(self) -> exp.Expr:
        """Return the condition that selects the records that are attacked: all, or a sample if one is asked for.

        The sample has every k-th record as stored, so that it has records of all large sub-tables.
        """
        records, sample, name = self.given.manifest.published_records, self.given.sample, self.name_relation("chosen")
        if sample is None or sample >= records:
            return exp.true()
        self.db.register_arrow(name, pa.table({"pos": np.arange(0, records, -(-records // sample))}))
        return exp.In(this=column("pos"), query=exp.select("pos").from_(temp_table(name)).subquery())

    @cached_property
    def record_cells(self) -> Ints:
        """Return the number of the cell of every record (n,): its sub-table and its published value.

        Raises:
            GuaranteeError: A published value is not one of its sub-table's stated values.
        """
        domains = exp.select("*").from_(table("privsql_domains", self.given.database)).subquery()
        stated: Holes = {"domains": domains, "values": temp_table("a_values"), "sa": self.roles.sa_columns("v")}
        self.db.create_view("a_cells", fill("randomize/cells_stated", stated))
        same_value = same_columns("r", "c", self.roles.sa_keys)
        holes: Holes = {"rows": self.rows, "cells": temp_table("a_cells"), "same_value": same_value}
        result = self.db.arrow(fill("attack/cells", holes))["cell"].to_numpy().astype(np.int64)
        if len(result) != len(self.record_parts):
            raise GuaranteeError("perturbed values do not belong to the stated domains; verify the release")
        return np.asarray(result)

    @cached_property
    def public_parameters(self) -> PublicParameters:
        """Return the public parameters with the number of records of each cell; those of a sample are scaled up."""
        subtables, domains = (table(name, self.given.database) for name in ("privsql_subtables", "privsql_domains"))
        stated = read_public(self.db, subtables, domains, temp_table("a_values"))
        totals = np.bincount(self.record_cells, minlength=len(stated.sub_tables)).astype(np.float64)
        whole = stated.records / np.maximum(np.bincount(stated.sub_tables, totals, minlength=len(stated.records)), 1)
        return replace(stated, totals=totals * whole[stated.sub_tables])

    @cached_property
    def bounds(self) -> Floats:
        """Return the bound on the belief in each value: rho2 if it is protected, else 1 (m,)."""
        return np.where(self.public_parameters.protected, float(Fraction(self.given.manifest.parameters["rho2"])), 1.0)

    @cached_property
    def shares(self) -> Floats:
        """Return the estimated share of all records with each value (m,); true shares are not published."""
        records = self.public_parameters.by_value(self.public_parameters.estimated[0])
        return np.asarray(records / records.sum())

    def blocks(self) -> Iterator[Block]:
        """Yield all records in blocks that are attacked together, with prior beliefs in the records' true values.

        A block has records of one sub-table. The belief in a true value follows from the record's published value
        (Bayes): it is proportional to the estimated count of the true value times the probability that it is published
        so. That a record has a value does not exclude it for other records.
        """
        order, public = np.argsort(self.record_cells, kind="stable"), self.public_parameters
        counts = np.bincount(public.sub_tables[self.record_cells], minlength=len(public.records))
        ends = np.cumsum(counts)
        for j, size in enumerate(public.domain_sizes.tolist()):
            mine = np.flatnonzero(public.sub_tables == j)
            share = public.estimated[0][mine] / public.records[j]
            moved = share[None, :] * public.perturbation_matrix(j).T  # (m_j perturbed, m_j true)
            moved /= moved.sum(axis=1, keepdims=True)
            members = order[ends[j] - counts[j] : ends[j]]
            step = max(1, CHUNK // size)
            for start in range(0, len(members), step):
                rows = members[start : start + step]
                prior = moved[np.searchsorted(mine, self.record_cells[rows])]
                yield Block(rows[None, :], public.code[mine][None, :], prior[None])

    @property
    def channel(self) -> Channel:
        """Return the linear channel, by which an attacker infers how many of some records have each true value.

        It gives the expected number of these records in each cell (published value and sub-table) from their true
        values.
        """
        return self.public_parameters.channel

    def observe_levels(self, level: Ints) -> Floats:
        """Count the records of each cell by level of a quasi-identifier (levels, cells).

        A level is the rank of a value in its column. An attacker learns from these counts how values depend on the
        column.

        Args:
            level: The level of each record, 0, 1, .. (n,).
        """
        return count_levels(level, self.record_cells, len(self.public_parameters.sub_tables))


ADVERSARIES: tuple[suite.Adversary[AttackView], ...] = (
    adversaries.LINKAGE_ADVERSARY,
    adversaries.ORDER_ADVERSARY,
    adversaries.IDENTIFIERS_ADVERSARY,
    adversaries.ABSENCE_ADVERSARY,
    adversaries.NEGATIVE_ADVERSARY,
    suite.LEARNING_ADVERSARY,
    adversaries.DETERMINATION_ADVERSARY,
)
