"""The protocol of a source that is ready to be published, whatever its shape is and whichever engine holds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from privsql.errors import GuaranteeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from sqlglot import exp

    from privsql.engine.database import Relations
    from privsql.engine.sqlfiles import Roles
    from privsql.keyed_random import Key
    from privsql.model.packing import PackedRecords
    from privsql.model.parameters import Order

    Ints = NDArray[np.int64]
    HashedRecords = tuple[NDArray[np.uint64], Ints | None]
    Reals = NDArray[np.float64]


@dataclass
class History:
    """What the publisher's ledger knows of earlier releases of the records, and will store of this one.

    A group is a set of records that are published together, such as a bucket.

    Attributes:
        releases: How many earlier releases the guarantee of the new one has to take into account.
        fetch: A function of a number m, which returns the group of each record in each of the last m releases (m, n).
            None if there are no earlier releases.
        groups: The group of each record in this release (n,), -1 if the record waits for a later release; None if the
            mechanism makes no groups.
        setting: What the mechanism's search found for an earlier release by the same request, so that it need not
            search again. At the end it is what it found for this release.
        withdraw: The command that withdraws that earlier release, for messages.
    """

    releases: int = 0
    fetch: Callable[[int], NDArray[np.int64]] | None = None
    groups: NDArray[np.integer[Any]] | None = None
    setting: dict[str, Any] | None = None
    withdraw: str = ""

    def earlier_groups(self, last: int, records: int) -> NDArray[np.int64]:
        """Return the group (such as the bucket) of each record in each of the last releases.

        Args:
            last: The number of releases.
            records: The number of records.

        Returns:
            The number of the group (last, records); -1 where a release did not hold the record.
        """
        if self.fetch is None or not last:
            return np.zeros((0, records), dtype=np.int64)
        return self.fetch(last)


class StaleSettingError(GuaranteeError):
    """An error: the result of an earlier search, kept in the ledger, does not fit the records or thresholds.

    A repeated release reuses that result instead of searching again.
    """

    def __init__(self) -> None:
        super().__init__(
            "the setting that the ledger holds of the same request does not fit these records or thresholds"
        )


CHOICE = r"^(system|key-file|seed):[0-9a-f]{16}$"


class Persons(BaseModel):
    """What a release states about persons with several records.

    Attributes:
        rule: What happens to them. ``refuse``: there are none. ``one``, ``first`` or ``some``: one record of each is
            published, or the first, or some. ``count``: all are published.
        several: The number of persons with several records; set for ``count`` only.
        most: The most records of any person (``count``), or the most that are published (``some``).
        order: The column by which the first record of each was taken; set for ``first`` only.
        choice: A one-way digest of the key that chose records, by which the key's owner can recognize it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    rule: Literal["refuse", "one", "first", "some", "count"]
    several: int | None = Field(default=None, ge=0)
    most: int | None = Field(default=None, ge=0)
    order: str | None = Field(default=None, exclude_if=lambda value: value is None)
    choice: str | None = Field(default=None, pattern=CHOICE, exclude_if=lambda value: value is None)

    @model_validator(mode="after")
    def _require_own_fields(self) -> Self:
        chosen, counted = self.rule in ("one", "first", "some"), self.rule == "count"
        given = [one is not None for one in (self.choice, self.most, self.several, self.order)]
        if given != [chosen, counted or self.rule == "some", counted, self.rule == "first"]:
            raise ValueError(f"persons by the rule {self.rule!r} have other entries")
        return self

    @classmethod
    def choose(cls, limit: int, choice: str, order: str | None = None) -> Persons:
        """Return the rule by which at most ``limit`` records of each person are published.

        Args:
            limit: The number of records.
            choice: The digest of the key that chooses.
            order: The column by which the first record of each is taken; None to choose at random.
        """
        if order is not None:
            return cls(rule="first", order=order, choice=choice)
        return cls(rule="one", choice=choice) if limit == 1 else cls(rule="some", most=limit, choice=choice)

    @property
    def taken(self) -> int | None:
        """Return the most records that were chosen of each person; None if none were chosen."""
        return {"one": 1, "first": 1, "some": self.most}.get(self.rule)

    def __str__(self) -> str:
        if self.rule == "one":
            return f"{SINGLE}, and a secret key chose one record of each"
        if self.rule == "first":
            return f"{SINGLE}, and the first of each by {self.order} was taken, as anybody knows"
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
    """Return in a sentence whether a record is a person; ``persons`` is None if no column names persons.

    >>> describe_persons(None), describe_persons(Persons(rule="refuse"))
    ('several records may belong to one person, as no column names persons', 'one record is one person: declared')
    """
    return f"{MANY}, as no column names persons" if persons is None else str(persons)


class Records(Protocol):
    """A source that is open in an engine, with its records counted and ready to be published.

    A source is a table, or its records are item sets; the relations in which the records lie depend on that
    (``mechanisms.base``). m is the number of sensitive values, or of items if records are item sets.
    """

    @property
    def db(self) -> Relations:
        """Return the engine that holds the source's relations."""

    @property
    def roles(self) -> Roles:
        """Return the columns by role: quasi-identifiers and sensitive columns."""

    @property
    def labels(self) -> Sequence[str]:
        """Return every sensitive value or item as text (m,), in the order of the numbers that stand for them."""

    @property
    def counts(self) -> Sequence[int]:
        """Return the number of records that have each sensitive value, or each item (m,)."""

    @property
    def records(self) -> int:
        """Return the number of records that can be published."""

    @property
    def source_records(self) -> int:
        """Return the number of all records of the source, including those that can't be published."""

    @property
    def suppressed(self) -> int:
        """Return the number of records that are left out because of a NULL."""

    @property
    def persons(self) -> Persons | None:
        """Return what is stated about persons with several records; None if no column names persons."""

    @property
    def history(self) -> History:
        """Return what the ledger knows of earlier releases of these records."""

    @property
    def known_by(self) -> Mapping[str, exp.Expr]:
        """Return SQL for the texts by which a ledger recognizes records and persons in later releases.

        The key ``id`` holds the SQL for the id of a record, and ``person`` that for the name of its person. A key is
        missing if the source has no such column. The SQL reads relation ``source``, and the texts do not depend on the
        types of the columns.
        """

    @property
    def has_ids(self) -> bool:
        """Return whether every record has a unique id, so that a ledger can follow it through releases."""

    @property
    def keep_predicate(self) -> exp.Expr:
        """Return the SQL condition over relation ``source`` for records that can be published."""

    def query_names(self, *, follow: bool, values: bool) -> exp.Query:
        """Return the query for the (id, person) of each record, which a ledger stores.

        Args:
            follow: If True, only records with ids are listed, in the order of ``sort_records``. A column ``trace`` is
                added, a digest of the record's published values that shows later whether the record has changed.
            values: Whether the sensitive value is added as text.
        """

    def hash_records(self, key: Key) -> Iterator[HashedRecords]:
        """Yield a keyed hash of the published values of each record, in batches and in any order.

        By these hashes a ledger recognizes records without storing them. Each batch is (hashes, the number of records
        that have each hash); the numbers are None if all are 1.
        """

    @property
    def published_values(self) -> list[tuple[exp.Expr, str]]:
        """Return the published columns, sorted by name, as (SQL over relation ``source``, type).

        A ledger hashes these values to recognize records. The list is empty for item sets.
        """

    @property
    def order(self) -> Order:
        """Return where a mechanism takes its random choices about records from, such as the choice of their buckets.

        ``stream``: random numbers that the key generates, in the order of the records. ``portable``: a keyed hash of
        each record, which is the same on every engine.
        """

    def bind_key(self, key: Key) -> Key:
        """Derive a key that serves for these records only.

        A publisher may use one key for several releases. With derived keys, the random choices for two tables are
        independent. For the order ``portable`` (see ``order``), this also creates relation ``hashed``, by which
        mechanisms place records. It has the quasi-identifiers q0.., the number ``code`` of the sensitive value, a keyed
        hash ``h`` of the whole record and, if records have ids, their position ``pos`` in the sorted records.
        """

    @property
    def packed(self) -> PackedRecords | None:
        """Return the records as sorted integers, one for each; None if a record or all of them do not fit."""

    def sort_records(self) -> None:
        """Create the sorted relations that mechanisms read; a second call does nothing."""

    def coded_records(self, *, ordered: bool) -> exp.Query:
        """Return the query for the columns (q0.., code) of every record that can be published.

        q0.. are the quasi-identifiers. ``code`` stands for the sensitive value: it is the position of the value among
        all sorted sensitive values, from 0. The query exists for tables only, not for item sets.

        Args:
            ordered: Whether records are sorted by sensitive value and then by q0..; else they come in any order.
        """

    def drop_relations(self) -> None:
        """Drop the relations that ``sort_records`` created."""

    def expose_as(self, name: str) -> None:
        """Create a view ``name`` of the sorted records with the publisher's own column names, to query true answers."""


@dataclass(frozen=True)
class Profile:
    """Counts of one column.

    Attributes:
        name: The name of the column.
        type: Its SQL type.
        records: The number of all records.
        filled: The number of records without NULL.
        different: The number of different values.
        most: The number of records with the most frequent value.
    """

    name: str
    type: str
    records: int
    filled: int
    different: int
    most: int

    @property
    def is_unique(self) -> bool:
        """Return whether no two records have the same value, and at least two have one."""
        return self.filled > 1 and self.different == self.filled
