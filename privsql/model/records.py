"""The protocol for a publisher's prepared source, universes as relations, and arrays of stated size."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, model_validator
from sqlglot import exp

from privsql.engine.sqlfiles import DIALECT, Holes, Roles, canonical_value, column, fill, temp_table
from privsql.errors import EngineError, GuaranteeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from privsql.engine.database import Relations
    from privsql.keyed_random import Key
    from privsql.model.packing import PackedRecords
    from privsql.model.parameters import Order, Universe

    Ints = NDArray[np.int64]
    HashedRecords = tuple[NDArray[np.uint64], Ints | None]
    Reals = NDArray[np.float64]

# Arrays ---------------------------------------------------------------------------------------------------------------
# Arrays whose size a release states, which may be anything.

MOST = 2**30  # bytes


def bounded_zeros(*shape: int) -> NDArray[np.float64]:
    """``np.zeros``; ``EngineError`` for more than ``MOST`` bytes, where the machine would rather end the process."""
    size = prod(max(length, 0) for length in shape) * np.dtype(np.float64).itemsize
    if size > MOST:
        raise EngineError(f"an array of {' x '.join(f'{length:,}' for length in shape)} numbers is too large")
    return np.zeros(shape)


def as_doubles(numbers: pa.Array | pa.ChunkedArray, null: float = np.nan) -> Reals:
    """Return numbers, or their texts, as doubles, and ``null`` for NULL.

    A whole number beyond 2^53 becomes the double next to it, which Arrow refuses to do by default.
    """
    return np.asarray(numbers.cast(pa.float64(), safe=False).fill_null(null).to_numpy(), dtype=np.float64)


def round_copies(weights: Reals) -> Ints:
    """How many records stand for each weight: rounded so that no running total is off by more than 1/2.

    Negative weights, which noise makes, count as 0.
    """
    totals = np.floor(np.cumsum(np.maximum(weights, 0)) + 0.5).astype(np.int64)
    return np.diff(totals, prepend=0)


def largest_transport(supply: Ints, demand: Ints, ways: tuple[Ints, Ints], room: Ints) -> int:
    """Return how much of what is supplied (n,) meets demands (m,) at most, in whole numbers: an integral flow.

    ``ways``: from which supply to which demand something can go, so much of it as each has ``room``.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    starts, ends = len(supply), len(demand)
    source, sink = starts + ends, starts + ends + 1
    tails = np.concatenate((np.full(starts, source), ways[0], starts + np.arange(ends))).astype(np.int32)
    heads = np.concatenate((np.arange(starts), starts + ways[1], np.full(ends, sink))).astype(np.int32)
    limits = np.concatenate((supply, room, demand)).astype(np.int32)
    graph = csr_array((limits, (tails, heads)), shape=(sink + 1, sink + 1))
    return int(maximum_flow(graph, source, sink).flow_value)


@dataclass(frozen=True)
class ReleaseArrays:
    """A release's tables: n records bucket by bucket, and K values by their codes.

    ``columns``: each quasi-identifier (n,), a column of numbers as floats with NaN for NULL, any other as whole codes.
    ``bucket`` (n,): the number of each record's bucket, 0, 1, .. in order. ``listed_bucket``, ``listed_value`` and
    ``listed_count`` (entries,): what the buckets list, by bucket. ``values`` (K,): labels.
    """

    columns: dict[str, NDArray[Any]]
    bucket: Ints
    listed_bucket: Ints
    listed_value: Ints
    listed_count: Ints
    values: list[str | None]

    def select_buckets(self, chosen: NDArray[np.bool_]) -> ReleaseArrays:
        """Return the records and lists of some buckets (buckets,), numbered anew."""
        number = np.cumsum(chosen) - 1
        records, entries = chosen[self.bucket], chosen[self.listed_bucket]
        return ReleaseArrays(
            {name: column[records] for name, column in self.columns.items()},
            number[self.bucket[records]],
            number[self.listed_bucket[entries]],
            self.listed_value[entries],
            self.listed_count[entries],
            self.values,
        )

    @property
    def sizes(self) -> Ints:
        """Return the number of records of every bucket."""
        return np.asarray(np.bincount(self.bucket))

    @property
    def log_shares(self) -> Reals:
        """Return the logarithms of the shares of the values (K,)."""
        counts = np.bincount(self.listed_value, self.listed_count, len(self.values))
        return np.asarray(np.log(counts / counts.sum()))


# Records --------------------------------------------------------------------------------------------------------------
# A publisher's source, ready to be published: one interface whatever its shape is and whichever engine holds it.


@dataclass
class History:
    """The publisher's ledger on earlier releases of the records, and its entry for this one.

    ``releases``: how many of them a guarantee has to take in; ``fetch``: the records' groups in so many of the last
    ones; ``groups``: the group of every record in this release (n,), -1 where it waits, None where there are none.
    ``setting``: what the search of an earlier release by the same request found, and then that of this one;
    ``withdraw``: the command that withdraws that release.
    """

    releases: int = 0
    fetch: Callable[[int], NDArray[np.int64]] | None = None
    groups: NDArray[np.integer[Any]] | None = None
    setting: dict[str, Any] | None = None
    withdraw: str = ""

    def earlier_groups(self, last: int, records: int) -> NDArray[np.int64]:
        """Group of each of so many ``records`` in the ``last`` releases (last, n), -1 where it was not in one."""
        if self.fetch is None or not last:
            return np.zeros((0, records), dtype=np.int64)
        return self.fetch(last)


class StaleSettingError(GuaranteeError):
    """The setting that a ledger holds of a request does not fit the records of the same request."""

    def __init__(self) -> None:
        super().__init__(
            "the setting that the ledger holds of the same request does not fit these records or thresholds"
        )


CHOICE = r"^(system|key-file|seed):[0-9a-f]{16}$"


class Persons(BaseModel):
    """The rule for persons with several records: there are none, one or some of each are published, or all are.

    ``most``: how many records one has, or that are taken of one at most. Where all are published, ``several``: how many
    persons have several. Where some are, ``choice``: a one-way digest of the key that chose, so that its holder knows
    it again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    rule: Literal["refuse", "one", "some", "count"]
    several: int | None = Field(default=None, ge=0)
    most: int | None = Field(default=None, ge=0)
    choice: str | None = Field(default=None, pattern=CHOICE, exclude_if=lambda value: value is None)

    @model_validator(mode="after")
    def _require_own_fields(self) -> Self:
        chosen, counted = self.rule in ("one", "some"), self.rule == "count"
        given = [one is not None for one in (self.choice, self.most, self.several)]
        if given != [chosen, counted or self.rule == "some", counted]:
            raise ValueError(f"persons by the rule {self.rule!r} have other entries")
        return self

    @classmethod
    def choose(cls, limit: int, choice: str) -> Persons:
        """Return the rule that takes at most ``limit`` records of each."""
        return cls(rule="one", choice=choice) if limit == 1 else cls(rule="some", most=limit, choice=choice)

    @property
    def taken(self) -> int | None:
        """Return how many records of each a key has chosen at most; None where none did."""
        return {"one": 1, "some": self.most}.get(self.rule)

    def __str__(self) -> str:
        if self.rule == "one":
            return f"{SINGLE}, and a secret key chose one record of each"
        if self.rule == "some":
            return f"at most {self.most} records are of one person: declared, and a secret key chose them"
        if self.rule == "refuse" or not self.several:
            return SINGLE
        return (
            f"{MANY}: {self.several:,} persons have several records, up to {self.most:,}. Every bound is that of a "
            "record, and an attacker who knows which records belong to one person learns more"
        )


SINGLE, MANY = "one record is one person: declared", "several records may belong to one person"


def describe_persons(persons: Persons | None) -> str:
    """Return what a record is to a person, in a sentence; ``persons`` is None where no column names them.

    >>> describe_persons(None), describe_persons(Persons(rule="refuse"))
    ('several records may belong to one person, as no column names persons', 'one record is one person: declared')
    """
    return f"{MANY}, as no column names persons" if persons is None else str(persons)


class Records(Protocol):
    """The source, mounted and counted. What it lies in follows from its shape (``mechanisms.base``)."""

    @property
    def db(self) -> Relations:
        """Where its relations are."""

    @property
    def roles(self) -> Roles:
        """Columns by role."""

    @property
    def labels(self) -> Sequence[str]:
        """Text of every sensitive value, or of every item, in canonical order (m,)."""

    @property
    def counts(self) -> Sequence[int]:
        """Records of every sensitive value, or with every item (m,)."""

    @property
    def records(self) -> int:
        """Records that can be published, n."""

    @property
    def source_records(self) -> int:
        """All records of the source."""

    @property
    def suppressed(self) -> int:
        """Records that the NULL policy leaves out."""

    @property
    def persons(self) -> Persons | None:
        """Return how many records persons have; None where no column names persons."""

    @property
    def history(self) -> History:
        """Earlier releases of the same subjects."""

    @property
    def known_by(self) -> Mapping[str, exp.Expr]:
        """Return the names of a record (``id``) and its person (``person``) over ``source`` that a ledger needs.

        Texts that are the same whatever the column's type was.
        """

    @property
    def has_ids(self) -> bool:
        """Return whether every record has a unique id, by which a ledger follows it."""

    @property
    def keep_predicate(self) -> exp.Expr:
        """The predicate over relation ``source`` of what can be published."""

    def query_names(self, *, follow: bool, values: bool) -> exp.Query:
        """The names of records and persons, (id, person).

        ``follow``: those of records that have ids, in the order of ``sort_records``, with a digest of what is
        published of each (``sql/ledger/traces.sql``); ``values``: and the text of its sensitive column.
        """

    def hash_records(self, key: Key) -> Iterator[HashedRecords]:
        """Keyed hashes of what is published of the records, in any order, each with how many have it (None: one)."""

    @property
    def published_values(self) -> list[tuple[exp.Expr, str]]:
        """The published columns over relation ``source``, with their types, in the order of names; none of sets."""

    @property
    def order(self) -> Order:
        """How the records take their places."""

    def bind_key(self, key: Key) -> Key:
        """The key for these records alone, so that a kept one can't correlate what it makes of two tables.

        Where their order is ``portable``, it makes relation ``hashed`` too: their columns q0.., ``code`` and a keyed
        hash ``h`` of all that a record holds; where records have names, their number ``pos``, too.
        """

    @property
    def packed(self) -> PackedRecords | None:
        """The records as integers, in canonical order; None where they do not fit into such."""

    def sort_records(self) -> None:
        """Make the relations that a mechanism of this shape reads, in canonical order; once."""

    def coded_records(self, *, ordered: bool) -> exp.Query:
        """Quasi-identifiers (q0..) and rank of the sensitive value (``code``) of every record that can be published.

        ``ordered``: value by value, each in canonical order; else in any. Tables only.
        """

    def drop_relations(self) -> None:
        """Forget these relations."""

    def expose_as(self, name: str) -> None:
        """Make the sorted records readable as ``name``, under the publisher's own column names."""


@dataclass(frozen=True)
class Profile:
    """Facts of a column.

    Records, those not NULL, different values, records of the most frequent value, and the share of records whose
    sensitive value is clear from this column already.
    """

    name: str
    type: str
    records: int
    filled: int
    different: int
    most: int
    clear: float = 0.0

    @property
    def is_unique(self) -> bool:
        """Return whether no two records share a value."""
        return self.filled > 1 and self.different == self.filled

    def lift_over(self, sensitive: Profile) -> float:
        """Return which share of wrong guesses of the commonest sensitive value knowing this column avoids."""
        base = sensitive.most / max(1, sensitive.records)
        return (self.clear - base) / (1 - base) if base < 1 else 0.0

    @property
    def remark(self) -> str:
        """For a comment in the specification."""
        nulls = f", {self.records - self.filled} NULL" if self.filled < self.records else ""
        share = self.most / max(1, self.records)
        return f"{self.name}: {self.type}, {self.different} values{nulls}, most frequent {share:.2%}"


# Universes as relations -----------------------------------------------------------------------------------------------
# A universe as a relation: its items in order, each with a code.


def create_universe(db: Relations, universe: Universe, kind: str, occurring: exp.Query) -> tuple[str, ...]:
    """Make relation ``universe``(code, item of type ``kind``); returns the text of its items.

    ``occurring``: query for the column ``item`` of those that occur. Raises ``UsageError`` for an empty universe, or an
    item that stands in it twice.
    """
    cast = _cast_item(column("item"), kind)
    if universe.items is not None:
        db.register_arrow("given", pa.table({"code": range(len(universe.items)), "item": list(universe.items)}))
        db.create_table("universe", fill("core/listed", {"given": temp_table("given"), "item": cast}))
    else:
        if universe.query is not None:
            db.create_from_sql("given", universe.query)
            first = column(db.list_fields(temp_table("given"))[0].name)
            cast = _cast_item(first, kind)
        else:
            db.create_table("given", occurring)
        db.create_table("universe", fill("core/ranked", {"given": temp_table("given"), "item": cast}))
    db.drop("given")
    holes: Holes = {"domain": temp_table("universe"), "labels": [exp.cast(column("item"), "VARCHAR")]}
    labels = tuple(str(row[0]) for row in db.rows(fill("core/labels", holes)))
    if not labels:
        raise UsageError("the universe has no items")
    if len(set(labels)) < len(labels):
        raise UsageError("an item appears twice in the universe")
    pairs = zip(universe.items or labels, labels, strict=True)
    if other := next((pair for pair in pairs if pair[0] != pair[1]), None):
        raise UsageError(f"{other[0]!r} is not how SQL prints a value of type {kind}; write {other[1]!r}")
    return labels


def _cast_item(item: exp.Expr, kind: str) -> exp.Expr:
    return canonical_value(exp.cast(item, exp.DataType.build(kind, dialect=DIALECT)), kind)
