"""The view that adversaries have of a release, as arrays, and the findings that they report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from privsql.answers.bucket_posteriors import assign_slots
from privsql.engine.sqlfiles import Holes, Roles, alias_as, all_rows, column, fill, same_columns, table, temp_table
from privsql.outcomes import JsonObject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.answers.channel import Channel
    from privsql.engine.database import Relations
    from privsql.model.manifest import Manifest

# Blocks of records ----------------------------------------------------------------------------------------------------
# Records that are attacked together, and the arithmetic of beliefs about them, in arrays.
#
# A block has b groups of r records and t slots each. Slots are places in the sensitive table: for a bucket, its listed
# values, each as often as it is counted, sigma of them fake; for a perturbed sub-table, its domain, where a value can
# be had by any number of records.

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LEAST = 1e-30  # no slot is impossible by rounding


@dataclass(frozen=True)
class Block:
    """Groups of records that are attacked together.

    Attributes:
        rows: The positions of the records (b, r).
        codes: The values of the slots (b, t).
        prior: The probability of each slot for a record before anything is learnt (b, r or 1, t).
        exclusive: Whether each slot belongs to one record, or to none.
        spare: How many slots of each group belong to none, if they are exclusive.
    """

    rows: Ints
    codes: Ints
    prior: Floats
    exclusive: bool = False
    spare: int = 0

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return (b, r, t)."""
        return (*self.rows.shape, self.codes.shape[1])

    @cached_property
    def value_counts(self) -> Ints:
        """Return for each slot how many slots of its group have the same value (b, t)."""
        if not self.exclusive:
            return np.ones(self.codes.shape, dtype=np.int64)
        return np.asarray((self.codes[:, :, None] == self.codes[:, None, :]).sum(axis=2))

    def update_beliefs(self, likelihood: Floats) -> Floats:
        """Return the posterior of the slots (b, r, t).

        Where slots are exclusive, it sums over all assignments of records to slots, each with the product of its
        likelihoods. Fake values count as further records that fit all slots equally well.

        Args:
            likelihood: The likelihood of each slot's value for each record (b, r, t), up to a factor for each record.
        """
        weights = np.maximum(self.prior * likelihood, LEAST)
        weights /= weights.sum(axis=2, keepdims=True)
        return assign_slots(weights, self.spare) if self.exclusive else np.asarray(weights)

    def of_values(self, slots: Floats) -> Floats:
        """Return the posterior of each slot's value (b, r, t): the sum over all slots of the group with the same value.

        Args:
            slots: The posterior of the slots (b, r, t).
        """
        return np.asarray(slots * self.value_counts[:, None, :])


# Findings -------------------------------------------------------------------------------------------------------------

PROMISED = "promised: the mechanism resists this adversary"
OUTSIDE = "outside the promise: nothing guarantees resistance, the figure says how far this adversary gets"


@dataclass(frozen=True)
class Finding(JsonObject):
    """What one adversary found in one release; ``Adversary.find`` says which one.

    Beliefs are posteriors of values. The figures on truth need the source; they are expectations over the records that
    share their quasi-identifiers.

    Attributes:
        adversary: The name of the adversary.
        knows: What it knows besides the algorithm, in plain words.
        promised: Whether the mechanism promises to resist it.
        attacked: How many records, buckets or columns were attacked.
        unit: What was attacked.
        mean: The mean belief in the best guess.
        highest: The highest belief in a best guess.
        above: The share of the attacked for which the belief in some value exceeds that value's promised bound.
        twice: The share for which it exceeds twice the bound. Whatever is learnt, however little, exceeds a bound that
            buckets use up entirely.
        baseline: The probability that a guess from the overall frequencies f alone is right, max f.
        right: The share of best guesses that are right.
        true_mean: The mean belief in the true value.
        true_above: The share of records for which the belief in the true value exceeds its bound.
        leaks: Whether the release has a fault that is no matter of probabilities.
        applies: False where the adversary has nothing to attack in a release of this kind.
        calibrated: Whether ``mean`` is how often the best guess is right. The release alone tells that.
        notes: What else there is to say, in sentences.
        curve: The certainty by the number of known records, theory beside measurement.
        values: The certainty by sensitive value, where it depends on that.
    """

    json_keys = ("*", "gain", "exceeded", "standing")

    adversary: str = ""
    knows: str = ""
    promised: bool = False
    attacked: int = 0
    unit: str = "records"
    mean: float | None = None
    highest: float | None = None
    above: float | None = None
    twice: float | None = None
    baseline: float | None = None
    right: float | None = None
    true_mean: float | None = None
    true_above: float | None = None
    leaks: bool = False
    applies: bool = True
    calibrated: bool = False
    notes: tuple[str, ...] = ()
    curve: tuple[dict[str, float], ...] = field(default=())
    values: tuple[dict[str, Any], ...] = field(default=())

    @property
    def counted(self) -> str:
        """Return how many were attacked, with the unit on a second line."""
        return f"{self.attacked:,}\n{self.unit.removesuffix('s') if self.attacked == 1 else self.unit}"

    @property
    def gain(self) -> float | None:
        """Return how many times likelier the best guess is right than one from the overall frequencies.

        The result is None where that is not known.
        """
        return self.mean / self.baseline if self.mean is not None and self.baseline else None

    @property
    def exceeded(self) -> bool:
        """Return True if a promise is broken: only an adversary that the mechanism promises to resist can show that."""
        return self.promised and (self.leaks or bool(self.above))

    @property
    def standing(self) -> str:
        """Say in words whether the promise covers the adversary."""
        return PROMISED if self.promised else OUTSIDE

    @property
    def outcome(self) -> str:
        """Return in a word or two whether the promise holds."""
        if not self.applies:
            return "not applicable"
        if not self.promised:
            return "not promised" if not self.leaks else "not promised; found"
        return "BROKEN" if self.exceeded else "kept"


# Tally ----------------------------------------------------------------------------------------------------------------

ROUNDING = 1e-9  # relative: beliefs in doubles that are at a bound do not exceed it


@dataclass(frozen=True)
class Truth:
    """How many of the source's records with the same quasi-identifiers have each value.

    A released record can be matched with the source only through its quasi-identifiers. Where several records of the
    source share them, it may be any of these, with the probability that the publisher's random choice put that one
    there. Every figure on the truth is the expectation over that. A fake value may be taken for a real one if another
    of these records has it; that shifts the figures a little.

    Attributes:
        keys: The number of every record's combination of quasi-identifiers (n,).
        cells: key * ``value_count`` + code, for each combination of key and code that occurs, sorted.
        records: How often each of these occurs in the source.
        totals: How often each value occurs (m,).
    """

    keys: Ints
    cells: Ints
    records: Ints
    totals: Ints

    @property
    def value_count(self) -> int:
        """Return the number of sensitive values, m."""
        return len(self.totals)

    def true_probability(self, block: Block) -> Floats:
        """Return the probability that a slot's value is the record's true one (b, r, t).

        Slots of the same value share its probability.
        """
        wanted = self.keys[block.rows][:, :, None] * self.value_count + block.codes[:, None, :]
        at = np.searchsorted(self.cells, wanted).clip(max=max(0, len(self.cells) - 1))
        matches = np.where(self.cells[at] == wanted, self.records[at], 0) if len(self.cells) else np.zeros(wanted.shape)
        shared = matches * block.prior / np.maximum(self.totals, 1)[block.codes][:, None, :]
        total = shared.sum(axis=2, keepdims=True)
        return np.asarray(np.divide(shared, total, out=np.zeros_like(shared), where=total > 0))


class Tally:
    """Sums over all attacked records of what is believed of them, block by block."""

    def __init__(self, bounds: Floats, truth: Truth | None = None) -> None:
        """Start with no records; ``bounds`` (m,) are the promised bounds of the values, 1 where there is none."""
        self._bounds, self._truth = bounds * (1 + ROUNDING), truth
        self.records, self.matched = 0, 0.0
        self._sums = dict.fromkeys(("mean", "above", "twice", "right", "true_mean", "true_above"), 0.0)
        self._highest = 0.0

    def add_block(self, block: Block, slots: Floats) -> None:
        """Count a block with its posterior (b, r, t)."""
        believed = block.of_values(slots)
        bounds = self._bounds[block.codes][:, None, :]
        over = believed > bounds
        best = believed.max(axis=2)
        self.records += best.size
        self._sums["mean"] += float(best.sum())
        self._sums["above"] += float(over.any(axis=2).sum())
        self._sums["twice"] += float((believed > 2 * bounds).any(axis=2).sum())
        self._highest = max(self._highest, float(best.max(initial=0)))
        if self._truth is None:
            return
        true, first = self._truth.true_probability(block), believed.argmax(axis=2)
        guess = np.take_along_axis(np.broadcast_to(block.codes[:, None, :], believed.shape), first[:, :, None], axis=2)
        self.matched += float(true.sum())
        self._sums["right"] += float(true[block.codes[:, None, :] == guess].sum())
        self._sums["true_mean"] += float((true * believed).sum())
        self._sums["true_above"] += float(true[over].sum())

    def finding_fields(self) -> dict[str, Any]:
        """Return the sums as fields of a ``Finding``."""
        found: dict[str, Any] = {"attacked": self.records, "highest": self._highest}
        found |= {name: self._sums[name] / max(1, self.records) for name in ("mean", "above", "twice")}
        names = ("right", "true_mean", "true_above") if self._truth is not None else ()
        return found | {name: self._sums[name] / max(1.0, self.matched) for name in names}


# Scene ----------------------------------------------------------------------------------------------------------------

CHUNK = 2**21  # numbers that a block's arrays may hold
RANKED = 50  # columns that one statement ranks


def count_levels(level: Ints, cells: Ints, number: int) -> Floats:
    """Return how many records of each level lie in each cell (levels, ``number``).

    Args:
        level: The level of each record (n,).
        cells: The cell of each record (n,), from 0.
        number: The number of cells.
    """
    levels = int(level.max()) + 1
    return np.bincount(level * number + cells, minlength=levels * number).reshape(levels, number).astype(np.float64)


@dataclass(frozen=True)
class ReleaseView:
    """An open release, and what adversaries are given beside it.

    Attributes:
        db: Where the release is open.
        manifest: Its manifest.
        noise: The generator of an adversary's random numbers.
        database: The database with its tables; None if it is the open file itself.
        source: Whether the source's records are available as relation ``records``.
        persons: Whether all records of the source with their persons are available as relation ``people``.
        sample: About how many records are attacked; None for all.
        within: How near to the truth a guess counts as right, where values are numbers; None for the promised distance.
        prefix: The prefix of the relations that are made from the release.
    """

    db: Relations
    manifest: Manifest
    noise: np.random.Generator
    database: str | None = None
    source: bool = False
    persons: bool = False
    sample: int | None = None
    within: str | None = None
    prefix: str = "a"

    @property
    def roles(self) -> Roles:
        """Return the release's columns."""
        return self.manifest.roles


class AttackView(ABC):
    """A release as arrays: the base class of what each mechanism makes of its tables for adversaries."""

    records: str  # the table with the quasi-identifiers
    part: str  # its column that says to which group a record belongs
    independent: bool  # whether the records' values were drawn independently of each other
    stated: tuple[str, ...]  # what the list of values says of each besides its code
    relations: tuple[str, ...] = ("rows",)  # relations that are made of the release, behind the view's prefix

    def __init__(self, view: ReleaseView) -> None:
        """Make the relations that the arrays are read from.

        They are ``a_records`` (part, q0.., more) as stored, its numbered rows, and ``a_values`` (code, s0.., stated).
        """
        self.given = view
        self.db, self.roles = view.db, view.roles
        roles, more, database = self.roles, self._more_columns(), view.database
        columns = roles.by_all if more else roles.by_qi
        items = [alias_as(columns.as_column(self.part), "part"), *roles.qi_in(), *(roles.sa_in() if more else [])]
        self.db.create_view("a_records", exp.select(*items).from_(table(self.records, database)))
        stated = [*roles.by_sa.select_columns("code"), *roles.sa_in(), *roles.by_sa.select_columns(*self.stated)]
        self.db.create_view("a_values", exp.select(*stated).from_(table("privsql_values", database)))
        holes: Holes = {
            "records": temp_table("a_records"),
            "stored": [],
            "qi": roles.qi_columns(),
            "more": [column(key) for key in more],
            "filter": self._attacked_filter(),
        }
        self.db.create_table(self.name_relation("rows"), fill("attack/rows", holes), title="Reading the release")

    # What a kind gives ---

    def _more_columns(self) -> list[str]:
        """Return further columns that ``a_records`` needs."""
        return []

    def _attacked_filter(self) -> exp.Expr:
        """Return the condition for the records to attack."""
        return exp.true()

    @property
    @abstractmethod
    def shares(self) -> Floats:
        """Return the overall frequencies f (m,)."""

    @property
    @abstractmethod
    def bounds(self) -> Floats:
        """Return the promised bound of the belief in each value (m,); 1 where there is none."""

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """Yield all records, block by block."""

    @property
    @abstractmethod
    def channel(self) -> Channel:
        """Return the channel from counts of sensitive values to published values (``answers.channel``)."""

    @abstractmethod
    def observe_levels(self, level: Ints) -> Floats:
        """Return the published values added up over the records with each level of a quasi-identifier (levels, k)."""

    @abstractmethod
    def excess_share(self) -> float:
        """Return the share of records for which the posterior of some value exceeds its bound, in exact numbers."""

    def canonical_orders(self) -> dict[str, tuple[exp.Table, list[str]]]:
        """Return, by the name of a table, its rows and the columns by which they must be sorted."""
        listed = exp.select(alias_as(self.roles.by_sa.as_column("bid"), "part"), *self.roles.sa_in())
        self.db.create_view("a_listed", listed.from_(table("st", self.given.database)))
        by_table = {self.records: (temp_table("a_records"), ["part", *self.roles.qi_keys])}
        return by_table | {"st": (temp_table("a_listed"), ["part", *self.roles.sa_keys])}

    @property
    def numbered_groups(self) -> list[Ints]:
        """Return the records of parts whose numbers must be random: an array (parts, size) for each size, by number.

        By default there are none.
        """
        return []

    @property
    def is_paired(self) -> bool:
        """Return whether the i-th record of a block stands beside the i-th listed value, as published."""
        return False

    # What follows ---

    def name_relation(self, name: str) -> str:
        """Return the name of a relation of this view; views that are open at the same time have different names."""
        return f"{self.given.prefix}_{name}"

    @property
    def rows(self) -> exp.Table:
        """Return the relation ``rows`` as a table."""
        return temp_table(self.name_relation("rows"))

    @cached_property
    def _record_rows(self) -> Any:
        listed = exp.select("part", "key").from_(self.rows).order_by("pos")
        return self.db.arrow(listed)

    @property
    def record_parts(self) -> Ints:
        """Return the bucket or sub-table of every record (n,), as stored."""
        return np.asarray(self._record_rows["part"].to_numpy().astype(np.int64))

    @property
    def record_keys(self) -> Ints:
        """Return a number for every record's combination of quasi-identifiers (n,)."""
        return np.asarray(self._record_rows["key"].to_numpy().astype(np.int64))

    @cached_property
    def levels(self) -> list[Ints]:
        """Return the level of every record in each quasi-identifier, one array (n,) for each column.

        Levels are ranks of the values from 0, with NULL last.
        """
        levels: list[Ints] = []
        for begin in range(0, len(self.roles.qi_keys), RANKED):
            ranks = []
            for key in self.roles.qi_keys[begin : begin + RANKED]:
                order = exp.Order(expressions=[exp.Ordered(this=column(key), nulls_first=False)])
                rank = exp.Window(this=exp.DenseRank(), order=order)
                ranks.append(alias_as(exp.Sub(this=rank, expression=exp.Literal.number(1)), key))
            found = self.db.arrow(fill("attack/levels", {"rows": self.rows, "levels": ranks}))
            levels += [one.to_numpy().astype(np.int64) for one in found.columns]
        return levels

    @property
    def protected_values(self) -> Ints:
        """Return the codes of the values whose bound is below 1; of all values if none is."""
        protected = np.flatnonzero(self.bounds < 1)
        return protected if len(protected) else np.arange(len(self.bounds))

    @property
    def baseline(self) -> float:
        """Return the probability that a guess from the overall frequencies alone is right."""
        return float(self.shares.max())

    @cached_property
    def truth(self) -> Truth | None:
        """Return what the source says of the records; None without the source."""
        if not self.given.source:
            return None
        holes: Holes = {
            "rows": self.rows,
            "records": temp_table("records"),
            "values": temp_table("a_values"),
            "qi": self.roles.qi_columns(),
            "same_qi": same_columns("k", "r", self.roles.qi_keys),
            "same_value": same_columns("r", "v", self.roles.sa_keys),
        }
        matches = self.db.arrow(fill("attack/truth", holes))
        key, code, records = (matches[name].to_numpy().astype(np.int64) for name in ("key", "code", "records"))
        m = len(self.shares)
        totals = np.bincount(code, records, minlength=m).astype(np.int64)
        return Truth(self.record_keys, key * m + code, records, totals)

    def close(self) -> None:
        """Drop the relations that this view made."""
        self.db.drop(*map(self.name_relation, self.relations))

    def make_tally(self) -> Tally:
        """Return an empty tally."""
        return Tally(self.bounds, self.truth)

    def read_values(self, columns: list[str]) -> Any:
        """Return columns of the release's list of values, in the order of their codes."""
        return self.db.arrow(exp.select(*columns).from_(temp_table("a_values")).order_by("code"))

    def read_table(self, name: str) -> Any:
        """Return all rows of a published table."""
        return self.db.arrow(all_rows(table(name, self.given.database)))
