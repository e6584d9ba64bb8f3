"""A randomized release as an adversary sees it: perturbed records in sub-tables with known matrices."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.attacks.block import Block, Floats, Ints
from privsql.attacks.scene import CHUNK, Scene
from privsql.engine.sqlfiles import Holes, column, fill, same, table, temp
from privsql.errors import GuaranteeError
from privsql.mechanisms.randomize.public import Public, public

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.answers.channel import Channel


class Perturbed(Scene):
    """The perturbed table, and the public parameters of its sub-tables."""

    records, part, independent = "perturbed", "sub_table", True
    stated = ("protected",)
    made = ("a_rows", "a_chosen")

    def _more(self) -> list[str]:
        return list(self.roles.sa_keys)

    def excess(self) -> float:
        """Share of the records in sub-tables whose stated parameters allow a posterior above rho2."""
        rho2 = Fraction(self.given.manifest.parameters["rho2"])
        found = []
        for row in self.all("privsql_subtables").to_pylist():
            rho1 = Fraction(int(row["rho1_numerator"]), int(row["rho1_denominator"]))
            gamma = Fraction(int(row["gamma_numerator"]), int(row["gamma_denominator"]))
            if gamma * rho1 > rho2 * (gamma * rho1 + 1 - rho1):
                found.append(int(row["sub_table"]))
        return float(np.isin(self.parts, found).mean())

    def ordered(self) -> dict[str, tuple[exp.Table, list[str]]]:
        """The perturbed table."""
        return {self.records: (temp("a_records"), ["part", *self.roles.qi_keys, *self.roles.sa_keys])}

    @property
    def numbered(self) -> list[Ints]:
        """None: a sub-table's number says which values are in it."""
        return []

    @property
    def paired(self) -> bool:
        """Every record stands beside its own perturbed value."""
        return False

    def _filter(self) -> exp.Expr:
        """Every k-th record as stored, so that all sub-tables and quasi-identifiers have their share of a sample."""
        given = self.given
        if given.sample is None or given.sample >= given.manifest.published_records:
            return exp.true()
        step = -(-given.manifest.published_records // given.sample)
        self.db.put("a_chosen", pa.table({"pos": np.arange(0, given.manifest.published_records, step)}))
        return exp.In(this=column("pos"), query=exp.select("pos").from_(temp("a_chosen")).subquery())

    @cached_property
    def cells(self) -> Ints:
        """Sub-table and perturbed value of every record as one number (n,)."""
        domains = exp.select("*").from_(table("privsql_domains", self.given.database)).subquery()
        stated: Holes = {"domains": domains, "values": temp("a_values"), "sa": self.roles.sa("v")}
        self.db.view("a_cells", fill("randomize/cells_stated", stated))
        holes: Holes = {
            "rows": temp("a_rows"),
            "cells": temp("a_cells"),
            "same_value": same("r", "c", self.roles.sa_keys),
        }
        found = self.db.arrow(fill("attack/cells", holes))["cell"].to_numpy().astype(np.int64)
        if len(found) != len(self.parts):
            raise GuaranteeError("perturbed values do not belong to the stated domains; verify the release")
        return np.asarray(found)

    @cached_property
    def public(self) -> Public:
        """Parameters and counts of the cells."""
        named = [table(name, self.given.database) for name in ("privsql_subtables", "privsql_domains")]
        stated = public(self.db, (*named, temp("a_values")))
        totals = np.bincount(self.cells, minlength=len(stated.own)).astype(np.float64)
        whole = stated.records / np.maximum(np.bincount(stated.own, totals, minlength=len(stated.records)), 1)
        return replace(stated, totals=totals * whole[stated.own])  # of a sample: scaled up

    @cached_property
    def bounds(self) -> Floats:
        """Rho2 for protected values, 1 for the others (m,)."""
        return np.where(self.public.protected, float(Fraction(self.given.manifest.parameters["rho2"])), 1.0)

    @cached_property
    def shares(self) -> Floats:
        """Frequencies (m,): estimates, as they are not published."""
        records = self.public.by_value(self.public.estimated[0])
        return np.asarray(records / records.sum())

    def blocks(self) -> Iterator[Block]:
        """Records of one sub-table; prior c_jx P_j(x, y) over its sum, c estimated. No value excludes another's."""
        order = np.argsort(self.cells, kind="stable")
        counts = np.bincount(self.public.own[self.cells], minlength=len(self.public.records))
        ends = np.cumsum(counts)
        for j, size in enumerate(self.public.sizes.tolist()):
            mine = np.flatnonzero(self.public.own == j)
            share = self.public.estimated[0][mine] / self.public.records[j]
            moved = share[None, :] * self.public.perturbation(j).T  # (m_j perturbed, m_j true)
            moved /= moved.sum(axis=1, keepdims=True)
            members = order[ends[j] - counts[j] : ends[j]]
            step = max(1, CHUNK // size)
            for start in range(0, len(members), step):
                rows = members[start : start + step]
                prior = moved[np.searchsorted(mine, self.cells[rows])]
                yield Block(rows[None, :], self.public.code[mine][None, :], prior[None])

    @property
    def channel(self) -> Channel:
        """The stacked perturbation matrices."""
        return self.public.channel

    def seen(self, level: Ints) -> Floats:
        """Records of every cell with each level."""
        number, levels = len(self.public.own), int(level.max()) + 1
        counted = np.bincount(level * number + self.cells, minlength=levels * number)
        return counted.reshape(levels, number).astype(np.float64)
