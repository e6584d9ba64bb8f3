"""A bucketized release as an adversary sees it: buckets of records beside slots of values."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from sqlglot import exp

from privsql.answers.reconstruct import LARGE
from privsql.attacks.block import Block, Floats, Ints
from privsql.attacks.scene import CHUNK, Scene
from privsql.engine.names import label
from privsql.engine.sqlfiles import Holes, column, fill, named, same, some, table, temp
from privsql.errors import GuaranteeError
from privsql.mechanisms.bucketize.fakes.law import LAW
from privsql.mechanisms.bucketize.groups.bounds import stated_bounds
from privsql.mechanisms.bucketize.groups.families import incidence
from privsql.mechanisms.bucketize.layout.lumps import by_block
from privsql.mechanisms.bucketize.model import staircases
from privsql.mechanisms.bucketize.tables import some_buckets
from privsql.mechanisms.bucketize.through import Through, through
from privsql.mechanisms.bucketize.unmask import Listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.answers.channel import Channel
    from privsql.mechanisms.bucketize.groups.bounds import Bound


TINY = 1e-30  # no division by 0
DRAWN = ("well-mixed", "largest-first")  # layouts whose bucket numbers are exchangeable within a size


class Buckets(Scene):
    """QIT and ST. ``fakes`` = sigma: values that the ST of every bucket lists beyond its records."""

    records, part, independent = "qit", "bid", False
    stated = ("records", "numerator", "denominator")
    made = ("a_rows", "a_composition")

    @property
    def fakes(self) -> int:
        """Sigma."""
        return int(self.given.manifest.parameters.get("fake_values", 0))

    def excess(self) -> float:
        """Share of the records in buckets that break a bound."""
        return float(np.isin(self.parts, self.broken).mean())

    def ordered(self) -> dict[str, tuple[exp.Table, list[str]]]:
        """QIT and ST."""
        listed = exp.select(named(self.roles.by_sa.column("bid"), "part"), *self.roles.sa_in()).from_(
            table("st", self.given.database)
        )
        self.db.view("a_listed", listed)
        own = {self.records: (temp("a_records"), ["part", *self.roles.qi_keys])}
        return own | {"st": (temp("a_listed"), ["part", *self.roles.sa_keys])}

    @property
    def numbered(self) -> list[Ints]:
        """Records by bucket, unless the layout runs with the numbers of the buckets.

        These are drawn within a size with fakes, and in some layouts; blocks of buckets draw an order of values each,
        or where values stand in lumps, which the buckets of a block share, are numbered at random as a whole.
        """
        facts = self.given.manifest.facts
        if facts.get("layout") == "lumps":
            return [] if self._share < 1 else [part for rows, _ in self.classes for part in by_block(rows)]
        running = facts.get("layout") == "round-robin" and facts.get("fake_law") != LAW
        return [] if running else [rows for rows, _ in self.classes]

    @property
    def paired(self) -> bool:
        """Without fakes every record has a slot."""
        return not self.fakes

    def _filter(self) -> exp.Expr:
        share, part = self._share, column("part")
        if share >= 1:
            return exp.true()
        layout = self.given.manifest.facts.get("layout")
        if layout == "round-robin":  # neighbours are alike: every k-th bucket
            return exp.EQ(this=exp.Mod(this=part, expression=_number(round(1 / share))), expression=_number(0))
        if layout not in DRAWN:  # those of one block are
            return some_buckets(share, part)
        setting = [int(number) for number in self.given.manifest.facts["setting"].values()]
        firsts = np.cumsum(setting) - setting
        ranges = [(int(a), int(a + np.ceil(b * share)) - 1) for a, b in zip(firsts, setting, strict=True)]
        return some([exp.Between(this=part, low=_number(low), high=_number(high)) for low, high in ranges])

    @cached_property
    def _share(self) -> float:
        """The share of the buckets that is attacked."""
        given = self.given
        return 1.0 if given.sample is None else given.sample / max(1, given.manifest.published_records)

    @cached_property
    def listed(self) -> tuple[Ints, Ints, Ints]:
        """ST as stored: bucket, code and count of every row."""
        self.db.view("a_st", self._named_st())
        names = self.roles.sa_keys
        holes: Holes = {
            "st": temp("a_st"),
            "values": temp("a_values"),
            "stored": [],
            "sa": self.roles.sa(),
            "same_value": same("s", "v", names),
            "filter": self._filter().transform(_renamed),
        }
        self.db.make("a_composition", fill("attack/composition", holes))
        found = self.db.arrow(exp.select("*").from_(temp("a_composition")))
        bid, code, records = (found[name].to_numpy().astype(np.int64) for name in ("bid", "code", "records"))
        return bid, code, records

    def _named_st(self) -> exp.Select:
        listed = exp.select(*self.roles.by_sa.read("bid", "count"), *self.roles.sa_in())
        return listed.from_(table("st", self.given.database))

    @cached_property
    def _stated(self) -> Any:
        return self.values(["records", "numerator", "denominator"])

    @cached_property
    def labels(self) -> list[str]:
        """Texts of the values."""
        columns = [exp.cast(item, "VARCHAR") for item in self.roles.sa()]
        rows = self.db.rows(exp.select(*columns).from_(temp("a_values")).order_by("code"))
        return [label(row) for row in rows]

    @property
    def times(self) -> Floats:
        """How often each value is listed in the whole release (m,)."""
        return np.asarray(self._stated["records"].to_numpy().astype(np.float64))

    @cached_property
    def bounds(self) -> Floats:
        """Thresholds f' (m,)."""
        pairs = zip(self._stated["numerator"].to_pylist(), self._stated["denominator"].to_pylist(), strict=True)
        return np.array([float(top) / float(bottom) for top, bottom in pairs])

    @cached_property
    def shares(self) -> Floats:
        """Frequencies (m,); estimates where listed values may be fake."""
        records = self.channel.records if self.fakes else self.times
        return np.asarray(records / records.sum())

    @cached_property
    def over(self) -> list[tuple[Any, ...]]:
        """(bid, code, records, listed) of values above their threshold, compared in integers."""
        if not len(self.listed[0]):  # and the composition is there
            return []
        holes: Holes = {"composition": temp("a_composition"), "values": temp("a_values")}
        return self.db.rows(fill("attack/over_bound", holes))

    @cached_property
    def together(self) -> list[Bound]:
        """The bounds on sets of values."""
        stated = stated_bounds(self.given.manifest.facts)
        if max((max(one.members) for one in stated), default=0) >= len(self.bounds):
            raise GuaranteeError("a bound is on values that are not listed; verify the release")
        return stated

    @cached_property
    def broken(self) -> Ints:
        """Buckets in which a value exceeds its threshold, or values together the bound of their group."""
        over = np.unique(np.array([int(row[0]) for row in self.over], dtype=np.int64))
        stated = self.together
        if not stated:
            return over
        bid, code, count = self.listed
        buckets, rank = np.unique(bid, return_inverse=True)
        sizes, size = np.unique(np.bincount(rank, count).astype(np.int64), return_inverse=True)
        listed = scipy.sparse.csr_array((count, (rank, code)), shape=(len(buckets), len(self.bounds)))
        held = (listed @ incidence(stated, len(self.bounds)).T).tocoo()
        own, bound = held.coords
        most = staircases([one.threshold for one in stated], sizes)
        return np.union1d(over, buckets[own[held.data > most[bound, size[own]]]])

    @cached_property
    def classes(self) -> list[tuple[Ints, Ints]]:
        """Per size, rows (b, size) and codes (b, size + sigma), both in the order in which they are stored."""
        bid, code, count = self.listed
        members = np.argsort(self.parts, kind="stable")
        buckets, sizes = np.unique(self.parts, return_counts=True)
        order = np.argsort(np.repeat(bid, count), kind="stable")
        slots = np.repeat(code, count)[order]
        named_, slot_sizes = np.unique(np.repeat(bid, count), return_counts=True)
        if not np.array_equal(buckets, named_) or not np.array_equal(sizes + self.fakes, slot_sizes):
            raise GuaranteeError("QIT and ST do not agree on the buckets; verify the release")
        starts, slot_starts = np.cumsum(sizes) - sizes, np.cumsum(slot_sizes) - slot_sizes
        found = []
        for size in np.unique(sizes).tolist():
            own = np.flatnonzero(sizes == size)
            rows = members[starts[own][:, None] + np.arange(size)]
            found.append((rows, slots[slot_starts[own][:, None] + np.arange(size + self.fakes)]))
        return found

    def blocks(self) -> Iterator[Block]:
        """Buckets of one size, as many at a time as memory wants."""
        for rows, codes in self.classes:
            step = max(1, CHUNK // (codes.shape[1] ** 2))
            for start in range(0, len(rows), step):
                part = codes[start : start + step]
                prior = self._prior(part)
                yield Block(rows[start : start + step], part, prior, exclusive=True, spare=self.fakes)

    def _prior(self, codes: Ints) -> Floats:
        """Probability that a record has each of the values that its bucket lists (b, 1, t)."""
        ratio = self.ratio[codes]
        return np.asarray(ratio / np.maximum(ratio.sum(axis=1, keepdims=True), TINY))[:, None]

    @cached_property
    def _counts(self) -> tuple[scipy.sparse.csr_array, Ints, Ints]:
        """How often each bucket lists each value (buckets, m), |g| (buckets,), and the row of every record's bucket."""
        bid, code, count = self.listed
        buckets, rank = np.unique(bid, return_inverse=True)
        own = np.searchsorted(buckets, self.parts)
        counts = scipy.sparse.csr_array(
            (count.astype(np.float64), (rank, code)), shape=(len(buckets), len(self.bounds))
        )
        return counts, np.bincount(own, minlength=len(buckets)), own

    @cached_property
    def _classes(self) -> list[Listed]:
        """How often values are listed together, by size of bucket."""
        counts, sizes, _ = self._counts
        found = []
        for size in np.unique(sizes).tolist():
            mine = counts[np.flatnonzero(sizes == size)]
            met = (mine.T @ mine).tocsr()
            pairs = met if met.shape[0] > LARGE else met.toarray()
            found.append(Listed(size, mine.shape[0], pairs, self.fakes))
        return found

    @cached_property
    def _through(self) -> Through:
        return through(self._classes, self.given.manifest.facts, self.times)

    @property
    def channel(self) -> Channel:
        """The channel of what the buckets list (``through``)."""
        return self._through.channel

    @property
    def ratio(self) -> Floats:
        """How much more often than others a listed value is real (m,)."""
        return self._through.ratio if self.fakes else np.ones(len(self.bounds))

    def seen(self, level: Ints) -> Floats:
        """Sums over the records with each level of what their buckets list (``through``)."""
        counts, sizes, own = self._counts
        scale, less = (
            np.array([amounts[size] for size in sizes.tolist()])
            for amounts in (self._through.scale, self._through.less)
        )
        shape = (int(level.max()) + 1, len(sizes))
        members = scipy.sparse.csr_array((np.ones(len(level)), (level, own)), shape=shape)
        listed = np.asarray((members @ (counts * scale[:, None])).todense())
        return np.asarray(listed - (members @ less)[:, None])


def _number(value: int) -> exp.Expr:
    return exp.Literal.number(value)


def _renamed(node: exp.Expr) -> exp.Expr:
    return column("bid") if isinstance(node, exp.Column) else node
