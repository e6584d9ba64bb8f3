"""A (k,e)-anonymous release as an adversary sees it: groups of records beside lists of values."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from privsql.attacks.block import Block
from privsql.attacks.scene import CHUNK, Scene
from privsql.engine.sqlfiles import named, table, temp
from privsql.errors import GuaranteeError
from privsql.mechanisms.permute.checks import read, unfine
from privsql.mechanisms.permute.contents import Contents, contents, through

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.answers.channel import Channel
    from privsql.attacks.block import Floats, Ints


class Permuted(Scene):
    """QIT and ST. No belief in a single value is bounded: (k,e) is about how many and how far apart values are."""

    records, part, independent = "qit", "bid", False
    stated = ("records",)

    @cached_property
    def contents(self) -> Contents:
        """What every group holds; ``GuaranteeError`` if the tables do not agree on it."""
        held = contents(self.db, self.roles, self.given.database)
        stated = self.values(["records"])["records"].to_numpy()
        if not np.array_equal(held.totals, stated) or held.groups <= self.parts.max(initial=0):
            raise GuaranteeError("QIT, ST and the list of values do not agree; verify the release")
        return held

    @cached_property
    def unfine(self) -> Ints:
        """Groups that are not (k,e)-anonymous."""
        listed = exp.select(*self.roles.by_sa.read("bid", "count"), *self.roles.sa_in())
        st = listed.from_(table("st", self.given.database)).subquery("st")
        rows = self.db.rows(unfine(st, self.roles, read(self.given.manifest)))
        return np.array([int(row[0]) for row in rows], dtype=np.int64)

    @cached_property
    def channel(self) -> Channel:
        """How many records of every group meet a question."""
        return through(self.contents)

    def seen(self, level: Ints) -> Floats:
        """Records of every group with each level."""
        groups, levels = self.contents.groups, int(level.max()) + 1
        counted = np.bincount(level * groups + self.parts, minlength=levels * groups)
        return counted.reshape(levels, groups).astype(np.float64)

    @cached_property
    def shares(self) -> Floats:
        """Frequencies (m,)."""
        records = self.contents.totals.astype(np.float64)
        return np.asarray(records / records.sum())

    @property
    def bounds(self) -> Floats:
        """None is promised."""
        return np.ones(self.contents.values)

    def excess(self) -> float:
        """Share of the records in groups that are not (k,e)-anonymous."""
        return float(np.isin(self.parts, self.unfine).mean())

    def ordered(self) -> dict[str, tuple[exp.Table, list[str]]]:
        """QIT and ST."""
        listed = exp.select(named(self.roles.by_sa.column("bid"), "part"), *self.roles.sa_in())
        self.db.view("a_listed", listed.from_(table("st", self.given.database)))
        own = {self.records: (temp("a_records"), ["part", *self.roles.qi_keys])}
        return own | {"st": (temp("a_listed"), ["part", *self.roles.sa_keys])}

    @property
    def numbered(self) -> list[Ints]:
        """None: groups are numbered along the axis."""
        return []

    @property
    def paired(self) -> bool:
        """A group's list of values is shorter than its list of records."""
        return False

    def blocks(self) -> Iterator[Block]:
        """Records of one group beside its distinct values; prior c_g(x)/|g|."""
        held = self.contents
        order = np.argsort(self.parts, kind="stable")
        counts = np.bincount(self.parts, minlength=held.groups)
        ends = np.cumsum(counts)
        listed = np.searchsorted(held.group, np.arange(held.groups + 1))
        for g in range(held.groups):
            own = slice(int(listed[g]), int(listed[g + 1]))
            share = held.records[own] / held.records[own].sum()
            members = order[ends[g] - counts[g] : ends[g]]
            step = max(1, CHUNK // max(1, len(share)))
            for start in range(0, len(members), step):
                rows = members[start : start + step]
                yield Block(rows[None, :], held.code[own][None, :], share[None, None, :])
