"""What every adversary sees of a release, as arrays: records, their quasi-identifiers as numbers, values and bounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql.attacks.tally import Tally, Truth
from privsql.engine.sqlfiles import Holes, all_rows, column, fill, named, same, table, temp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.answers.channel import Channel
    from privsql.attacks.block import Block, Floats, Ints
    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.model.manifest import Manifest

CHUNK = 2**21  # numbers that a block's arrays may hold


@dataclass(frozen=True)
class ReleaseView:
    """A release that is open in ``db``, its tables in ``database`` (None: the open file itself).

    ``source``: whether the source's records are there as ``records``; ``sample``: attack about as many records only
    (None: all); ``noise``: for what an adversary draws; ``within``: how near a guess has to come, where values have a
    distance (None: as the mechanism promises).
    """

    db: Relations
    manifest: Manifest
    noise: np.random.Generator
    database: str | None = None
    source: bool = False
    sample: int | None = None
    within: str | None = None

    @property
    def roles(self) -> Roles:
        """The release's columns."""
        return self.manifest.roles


class Scene(ABC):
    """What is common to all kinds of releases; a kind gives what its tables say."""

    records: str  # the table with the quasi-identifiers
    part: str  # its column that says to which group a record belongs
    independent: bool  # whether the records' values were drawn independently of each other
    stated: tuple[str, ...]  # what the list of values says of each besides its code
    made: tuple[str, ...] = ("a_rows",)  # relations that are made of the release

    def __init__(self, given: ReleaseView) -> None:
        self.given = given
        self.db, self.roles = given.db, given.roles
        self._name_tables()

    # What a kind gives ---

    def _more(self) -> list[str]:
        """Further columns of the records."""
        return []

    def _filter(self) -> exp.Expr:
        """Which records are attacked."""
        return exp.true()

    @property
    @abstractmethod
    def shares(self) -> Floats:
        """Overall frequencies f (m,)."""

    @property
    @abstractmethod
    def bounds(self) -> Floats:
        """Promised bounds (m,), 1 where there is none."""

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """All records, block by block."""

    @property
    @abstractmethod
    def channel(self) -> Channel:
        """The channel through which counts per sensitive value are seen."""

    @abstractmethod
    def seen(self, level: Ints) -> Floats:
        """What the channel shows of the records with each level of a quasi-identifier (levels, k)."""

    @abstractmethod
    def excess(self) -> float:
        """Share of the records for which a value's posterior exceeds its bound, decided in exact numbers."""

    @abstractmethod
    def ordered(self) -> dict[str, tuple[exp.Table, list[str]]]:
        """By table: its rows, and the columns by which they are to be sorted."""

    @property
    @abstractmethod
    def numbered(self) -> list[Ints]:
        """Records of parts whose numbers are exchangeable, (parts, size), in the order of the numbers."""

    @property
    @abstractmethod
    def paired(self) -> bool:
        """Whether the i-th record of a block stands beside the i-th listed value, as published."""

    # What follows ---

    def _name_tables(self) -> None:
        """a_records(part, q0.., more) as stored, and a_rows of it; a_values(code, s0.., and what the kind needs)."""
        roles, more, database = self.roles, self._more(), self.given.database
        beside = roles.by_all if more else roles.by_qi
        own = [named(beside.column(self.part), "part"), *roles.qi_in(), *(roles.sa_in() if more else [])]
        self.db.view("a_records", exp.select(*own).from_(table(self.records, database)))
        listed = table("privsql_values", database)
        values = exp.select(*roles.by_sa.read("code"), *roles.sa_in(), *roles.by_sa.read(*self.stated)).from_(listed)
        self.db.view("a_values", values)
        holes: Holes = {
            "records": temp("a_records"),
            "stored": [],
            "qi": roles.qi(),
            "more": [column(key) for key in more],
            "filter": self._filter(),
        }
        self.db.make("a_rows", fill("attack/rows", holes), title="Reading the release")

    @cached_property
    def _rows(self) -> Any:
        listed = exp.select("part", "key").from_(temp("a_rows")).order_by("pos")
        return self.db.arrow(listed)

    @property
    def parts(self) -> Ints:
        """Bucket or sub-table of every record (n,), as stored."""
        return np.asarray(self._rows["part"].to_numpy().astype(np.int64))

    @property
    def keys(self) -> Ints:
        """The number of every record's quasi-identifiers together (n,)."""
        return np.asarray(self._rows["key"].to_numpy().astype(np.int64))

    @cached_property
    def levels(self) -> list[Ints]:
        """The quasi-identifiers of every record as ranks (n,), one array per column."""
        holes = [{"rows": temp("a_rows"), "column": column(key)} for key in self.roles.qi_keys]
        found = (self.db.arrow(fill("attack/levels", one)) for one in holes)
        return [one["level"].to_numpy().astype(np.int64) for one in found]

    @property
    def baseline(self) -> float:
        """Probability of guessing right from the overall frequencies alone."""
        return float(self.shares.max())

    @cached_property
    def truth(self) -> Truth | None:
        """What the source says of the records, if it is there."""
        if not self.given.source:
            return None
        holes: Holes = {
            "rows": temp("a_rows"),
            "records": temp("records"),
            "values": temp("a_values"),
            "qi": self.roles.qi(),
            "same_qi": same("k", "r", self.roles.qi_keys),
            "same_value": same("r", "v", self.roles.sa_keys),
        }
        found = self.db.arrow(fill("attack/truth", holes))
        key, code, records = (found[name].to_numpy().astype(np.int64) for name in ("key", "code", "records"))
        m = len(self.shares)
        totals = np.bincount(code, records, minlength=m).astype(np.int64)
        return Truth(self.keys, key * m + code, records, totals)

    def close(self) -> None:
        """Forget what was made."""
        self.db.drop(*self.made)

    def tally(self) -> Tally:
        """An empty tally."""
        return Tally(self.bounds, self.truth)

    def values(self, columns: list[str]) -> Any:
        """Columns of the release's list of values, in the order of their codes."""
        return self.db.arrow(exp.select(*columns).from_(temp("a_values")).order_by("code"))

    def all(self, name: str) -> Any:
        """All rows of a published table."""
        return self.db.arrow(all_rows(table(name, self.given.database)))
