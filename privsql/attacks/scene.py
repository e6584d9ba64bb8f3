"""A release as arrays, as adversaries see it, and the findings that they report.

A slot is a place for a value in the sensitive table: a value that a bucket lists, or, in a perturbed release, one of
the values that the records of a sub-table may have.
"""

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
# Records that are attacked together, and the beliefs about them, as arrays.
#
# A block has b groups of r records and t slots each. A slot is a place for a value. A bucket has a slot for each value
# that it lists, as often as it is counted; sigma of its values are fake. A perturbed sub-table has a slot for each
# value of its domain, which any number of records may have.

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LEAST = 1e-30  # least weight of a slot, so that rounding makes none impossible


@dataclass(frozen=True)
class Block:
    """b groups of records that are attacked together, each with r records and t slots.

    A slot is a place for a value, such as one value that a bucket lists.

    Attributes:
        rows: The positions of the records (b, r).
        codes: The codes of the values in the slots (b, t).
        prior: The probability that a record has the value of a slot, before anything is learnt (b, r or 1, t). The
            second axis has length 1 if it is the same for all records of a group.
        exclusive: Whether each slot belongs to at most one record, as in a bucket.
        spare: How many slots of each group belong to no record (fake values), if slots are exclusive.
    """

    rows: Ints
    codes: Ints
    prior: Floats
    exclusive: bool = False
    spare: int = 0

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return (b, r, t): the numbers of groups, of records in each, and of slots (places for values) in each."""
        return (*self.rows.shape, self.codes.shape[1])

    @cached_property
    def value_counts(self) -> Ints:
        """Return how many slots of a group have the same value as each slot (b, t); slots are places for values.

        There are b groups with t slots each. A bucket that lists a value twice has two slots for it, and the belief in
        the value is the sum over both. If several records may share a slot (``exclusive`` is false), a value has one
        slot, and the result is 1.
        """
        if not self.exclusive:
            return np.ones(self.codes.shape, dtype=np.int64)
        return np.asarray((self.codes[:, :, None] == self.codes[:, None, :]).sum(axis=2))

    def update_beliefs(self, likelihood: Floats) -> Floats:
        """Return the probability of each slot for each record after an attack (b, r, t).

        A slot is a place for a value, such as one value that a bucket lists. There are b groups of r records and t
        slots each. If slots are exclusive, all assignments of records to slots are summed up, each with the product of
        its likelihoods. Fake values count as further records that fit all slots equally well.

        Args:
            likelihood: The likelihood of each slot's value for each record (b, r, t), up to a factor for each record.
        """
        weights = np.maximum(self.prior * likelihood, LEAST)
        weights /= weights.sum(axis=2, keepdims=True)
        return assign_slots(weights, self.spare) if self.exclusive else np.asarray(weights)

    def of_values(self, slots: Floats) -> Floats:
        """Return for each of r records in b groups the belief in the value of each of t slots (b, r, t).

        A slot is a place for a value, such as one value that a bucket lists. If several slots of a group have the same
        value, the belief in it is the sum over them.

        Args:
            slots: The probability of each slot for each record (b, r, t).
        """
        return np.asarray(slots * self.value_counts[:, None, :])


# Findings -------------------------------------------------------------------------------------------------------------

PROMISED = "promised: the mechanism resists this adversary"
OUTSIDE = "outside the promise: nothing guarantees resistance, the figure says how far this adversary gets"


@dataclass(frozen=True)
class Finding(JsonObject):
    """What one adversary found in one release.

    A belief is the probability that the adversary gives to a value of a record. Figures on the truth need the source.
    They are expectations over the source's records with the same quasi-identifiers.

    Attributes:
        adversary: The name of the adversary.
        knows: What it knows besides the algorithm, in plain words.
        promised: Whether the mechanism promises to resist it.
        attacked: How many records, buckets or columns were attacked.
        unit: What was attacked.
        mean: The mean belief in the best guess.
        highest: The highest belief in a best guess.
        above: The share of the attacked for which the belief in some value exceeds that value's promised bound.
        twice: The share for which it exceeds twice the bound. (Buckets may allow a belief exactly as high as its bound.
            Anything more that is learnt then exceeds the bound, so ``above`` says little.)
        baseline: The probability that a guess from the overall frequencies alone is right: the largest frequency.
        right: The share of best guesses that are right.
        true_mean: The mean belief in the true value.
        true_above: The share of records for which the belief in the true value exceeds its bound.
        leaks: Whether the release has a fault that is not a matter of probabilities, such as a column that identifies
            records.
        applies: False if the adversary has nothing to attack in a release of this kind.
        calibrated: Whether about 30 % of the guesses with a belief of 30 % are right, and so on. Then ``mean``
            estimates, without the source, how often the best guess is right.
        notes: Further remarks, in sentences.
        curve: For an adversary who knows the values of other records of a bucket, the mean highest belief by the number
            of these records (``known``): the worst case in ``theory``, and as ``measured``.
        values: For each sensitive value of a release with fake values, the probability that a listed one is real.
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
        """Return how many records (or buckets, or columns) were attacked, with the unit on a second line."""
        return f"{self.attacked:,}\n{self.unit.removesuffix('s') if self.attacked == 1 else self.unit}"

    @property
    def gain(self) -> float | None:
        """Return how many times likelier the best guess is right than a guess from the overall frequencies.

        The result is None if that is not known.
        """
        return self.mean / self.baseline if self.mean is not None and self.baseline else None

    @property
    def exceeded(self) -> bool:
        """Return True if the adversary breaks a promise: the mechanism promises resistance, but a bound is exceeded."""
        return self.promised and (self.leaks or bool(self.above))

    @property
    def standing(self) -> str:
        """Return in words whether the mechanism promises to resist the adversary."""
        return PROMISED if self.promised else OUTSIDE

    @property
    def outcome(self) -> str:
        """Return in a word or two whether the promise against the adversary holds."""
        if not self.applies:
            return "not applicable"
        if not self.promised:
            return "not promised" if not self.leaks else "not promised; found"
        return "BROKEN" if self.exceeded else "kept"


# Tally ----------------------------------------------------------------------------------------------------------------

ROUNDING = 1e-9  # relative rounding error: a belief so close to its bound does not exceed it


@dataclass(frozen=True)
class Truth:
    """How many records of the source have each of m sensitive values, for each combination of quasi-identifiers.

    The figures on how often an adversary is right are computed from it. A released record is matched with the source's
    records of equal quasi-identifiers. If there are several, it may be any of them, depending on the publisher's random
    choice. So these figures are expectations over that choice. A fake value may be taken for a real one if one of these
    records has it; the effect is small.

    Attributes:
        keys: The number of the combination of quasi-identifiers of each of n released records (n,).
        cells: The pairs of a combination (key) and a sensitive value (code) that occur, each as the number key *
            ``value_count`` + code, sorted.
        records: How many records of the source each of these pairs has.
        totals: How often each sensitive value occurs (m,).
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

        A slot is a place for a value, such as one value that a bucket lists. There are b groups of r records and t
        slots each. Slots with the same value share its probability.
        """
        wanted = self.keys[block.rows][:, :, None] * self.value_count + block.codes[:, None, :]
        at = np.searchsorted(self.cells, wanted).clip(max=max(0, len(self.cells) - 1))
        matches = np.where(self.cells[at] == wanted, self.records[at], 0) if len(self.cells) else np.zeros(wanted.shape)
        shared = matches * block.prior / np.maximum(self.totals, 1)[block.codes][:, None, :]
        total = shared.sum(axis=2, keepdims=True)
        return np.asarray(np.divide(shared, total, out=np.zeros_like(shared), where=total > 0))


class Tally:
    """Sums, over all attacked records, of an adversary's beliefs and of how often it is right."""

    def __init__(self, bounds: Floats, truth: Truth | None = None) -> None:
        """Start with no records.

        Args:
            bounds: The promised bound of the belief (an attacker's probability) in each of m sensitive values (m,); 1
                if there is none.
            truth: The sensitive values of the source; None without the source.
        """
        self._bounds, self._truth = bounds * (1 + ROUNDING), truth
        self.records, self.matched = 0, 0.0
        self._sums = dict.fromkeys(("mean", "above", "twice", "right", "true_mean", "true_above"), 0.0)
        self._highest = 0.0

    def add_block(self, block: Block, slots: Floats) -> None:
        """Add the records of a block: b groups of r records with t slots each (values that a bucket lists).

        Args:
            block: The block.
            slots: The probability of each slot for each record after the attack (b, r, t).
        """
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
        """Return mean beliefs and shares over all added records, by the names of the fields of ``Finding``.

        A belief is the probability that the adversary gives to a value of a record. One share is that of records for
        which a belief exceeds its bound.
        """
        found: dict[str, Any] = {"attacked": self.records, "highest": self._highest}
        found |= {name: self._sums[name] / max(1, self.records) for name in ("mean", "above", "twice")}
        names = ("right", "true_mean", "true_above") if self._truth is not None else ()
        return found | {name: self._sums[name] / max(1.0, self.matched) for name in names}


# Scene ----------------------------------------------------------------------------------------------------------------

CHUNK = 2**21  # most numbers in an array of a block
RANKED = 50  # columns that are ranked by one query


def count_levels(level: Ints, cells: Ints, number: int) -> Floats:
    """Count records by their value in a column and by the part of the release in which they are (levels, ``number``).

    Parts are, for example, the groups of a release, or its pairs of a sub-table and a published value.

    Args:
        level: The rank of each of n records' values among those of the column (n,).
        cells: The number of each record's part, from 0 (n,).
        number: How many parts there are.
    """
    levels = int(level.max()) + 1
    return np.bincount(level * number + cells, minlength=levels * number).reshape(levels, number).astype(np.float64)


@dataclass(frozen=True)
class ReleaseView:
    """An open release, and what adversaries are given in addition.

    Attributes:
        db: The session in which the release is open.
        manifest: Its manifest.
        noise: The generator of an adversary's random numbers.
        database: The database with its tables; None for the current one.
        source: Whether the source's records are available as relation ``records``.
        persons: Whether all records of the source with their persons are available as relation ``people``.
        sample: About how many records are attacked; None for all.
        within: For (k, e)-permutation, how close to the sensitive number a guess must be to count as right; None for
            the promised distance e.
        prefix: The prefix of the names of relations that are made for this view.
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
        """Return which columns of the release are quasi-identifiers, and which are sensitive."""
        return self.manifest.roles


class AttackView(ABC):
    """The base class of a release as arrays, for attacks; each mechanism has a subclass for its tables.

    There are n records and m sensitive values. A level is the rank of a value among those of its column.

    Attributes:
        records: The name of the published table with the quasi-identifiers.
        part: The column of that table that says in which bucket or sub-table a record is.
        independent: Whether the records' published values were drawn independently of each other.
        stated: The columns to read from the published list of sensitive values, besides their codes.
        relations: The names, after the view's prefix, of the temporary tables that the view makes.
    """

    records: str
    part: str
    independent: bool
    stated: tuple[str, ...]
    relations: tuple[str, ...] = ("rows",)

    def __init__(self, view: ReleaseView) -> None:
        """Make temporary tables and views in the engine, from which the arrays are read.

        View ``a_records`` has the records in stored order: their part (bucket or sub-table), quasi-identifiers (q0..)
        and further columns. Table ``rows`` has the same records with their row numbers. View ``a_values`` has the
        sensitive values: their code, columns (s0..), and what the release publishes of each, such as its number of
        records.

        Args:
            view: The open release, and what the adversaries know in addition.
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

    # What each mechanism defines ---

    def _more_columns(self) -> list[str]:
        """Return the keys of columns that attacks read besides quasi-identifiers, such as s0; by default none.

        They are columns of the published table of records. A perturbed table has sensitive columns, too.
        """
        return []

    def _attacked_filter(self) -> exp.Expr:
        """Return the SQL condition for the records to attack, which selects a sample if one is wanted."""
        return exp.true()

    @property
    @abstractmethod
    def shares(self) -> Floats:
        """Return the share of the records with each of m sensitive values (m,)."""

    @property
    @abstractmethod
    def bounds(self) -> Floats:
        """Return the promised bound of the belief in each of m sensitive values (m,); 1 if there is none.

        A belief is the probability that an attacker gives to a value of a record.
        """

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """Yield all attacked records in blocks, each of which is attacked in one step.

        A block holds several groups of records, such as buckets of one size, and the values that these records may
        have.
        """

    @property
    @abstractmethod
    def channel(self) -> Channel:
        """Return the matrix by which counts of sensitive values give expected counts of what a release publishes.

        Attackers invert it: they estimate how many of some records have each sensitive value. What is published are the
        values that buckets list, perturbed values, or groups, depending on the mechanism.
        """

    @abstractmethod
    def observe_levels(self, level: Ints) -> Floats:
        """Count what a release publishes of the records with each value of a quasi-identifier (levels, k).

        The k counted items are the values that buckets list, perturbed values, or groups, depending on the mechanism.
        Attackers estimate from the counts how sensitive values depend on the quasi-identifier.

        Args:
            level: The level of each of n records (n,): the rank of its value among those of the quasi-identifier.
        """

    @abstractmethod
    def excess_share(self) -> float:
        """Return the share of records for which a belief of the attacker exceeds its promised bound.

        A belief is the probability of a sensitive value of the record. It is compared in exact numbers, so that
        rounding breaks no promise.
        """

    def canonical_orders(self) -> dict[str, tuple[exp.Table, list[str]]]:
        """Return for each published table its rows, and the columns by which they must be sorted to reveal nothing.

        Another order could be that of the source.
        """
        listed = exp.select(alias_as(self.roles.by_sa.as_column("bid"), "part"), *self.roles.sa_in())
        self.db.create_view("a_listed", listed.from_(table("st", self.given.database)))
        by_table = {self.records: (temp_table("a_records"), ["part", *self.roles.qi_keys])}
        return by_table | {"st": (temp_table("a_listed"), ["part", *self.roles.sa_keys])}

    @property
    def numbered_groups(self) -> list[Ints]:
        """Return the records of each bucket, in the order of the buckets' numbers, to test if these reveal anything.

        There is one array (buckets, size) of records' positions for each size of buckets. The list is empty if the
        mechanism does not promise that the buckets of one size are numbered at random.
        """
        return []

    @property
    def is_paired(self) -> bool:
        """Return whether the i-th row of a bucket can be compared with the bucket's i-th listed value.

        That needs one listed value for each record. An attacker then tests whether they belong together more often than
        by chance, which shows that the published order reveals values.
        """
        return False

    # What follows for all mechanisms ---

    def name_relation(self, name: str) -> str:
        """Return the name of one of this view's relations in the database, made from ``name`` and the view's prefix."""
        return f"{self.given.prefix}_{name}"

    @property
    def rows(self) -> exp.Table:
        """Return the relation of the release's records with their row numbers, for use in a query."""
        return temp_table(self.name_relation("rows"))

    @cached_property
    def _record_rows(self) -> Any:
        listed = exp.select("part", "key").from_(self.rows).order_by("pos")
        return self.db.arrow(listed)

    @property
    def record_parts(self) -> Ints:
        """Return the bucket or sub-table of each of the n records (n,), in stored order."""
        return np.asarray(self._record_rows["part"].to_numpy().astype(np.int64))

    @property
    def record_keys(self) -> Ints:
        """Return for each of n records a number (n,) that is equal for records with equal quasi-identifiers.

        It tells which records are unique, and links released records with those of the source.
        """
        return np.asarray(self._record_rows["key"].to_numpy().astype(np.int64))

    @cached_property
    def levels(self) -> list[Ints]:
        """Return for each quasi-identifier the level of n records (n,): the rank of their value from 0, NULL last."""
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
        """Return the codes of the sensitive values that the release protects; all codes if it protects none.

        A value is protected if the release promises a bound below 1 for an attacker's belief in it.
        """
        protected = np.flatnonzero(self.bounds < 1)
        return protected if len(protected) else np.arange(len(self.bounds))

    @property
    def baseline(self) -> float:
        """Return the probability that a guess of the most frequent sensitive value is right."""
        return float(self.shares.max())

    @cached_property
    def truth(self) -> Truth | None:
        """Return the source's true sensitive values, by which right guesses are counted; None without the source."""
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
        """Drop the relations that were made for this view."""
        self.db.drop(*map(self.name_relation, self.relations))

    def make_tally(self) -> Tally:
        """Return an empty sum of an adversary's beliefs, to which the attack on this release adds block by block.

        It has the release's bounds of beliefs and, if the source is known, its true values.
        """
        return Tally(self.bounds, self.truth)

    def read_values(self, columns: list[str]) -> Any:
        """Return some columns of the release's table of sensitive values, sorted by the values' codes."""
        return self.db.arrow(exp.select(*columns).from_(temp_table("a_values")).order_by("code"))

    def read_table(self, name: str) -> Any:
        """Return all rows of a published table."""
        return self.db.arrow(all_rows(table(name, self.given.database)))
