"""The protocol for a publisher's source, ready to be published, whatever its shape is and whichever engine holds it."""

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
    """What the publisher's ledger says of earlier releases of the records, and will say of this one.

    Attributes:
        releases: How many earlier releases a guarantee has to take in.
        fetch: Reads the records' groups in the given number of last releases.
        groups: The group of each record in this release (n,), -1 where it waits; None if there are no groups.
        setting: What the search of an earlier release by the same request found; in the end, that of this one.
        withdraw: The command that withdraws that earlier release.
    """

    releases: int = 0
    fetch: Callable[[int], NDArray[np.int64]] | None = None
    groups: NDArray[np.integer[Any]] | None = None
    setting: dict[str, Any] | None = None
    withdraw: str = ""

    def earlier_groups(self, last: int, records: int) -> NDArray[np.int64]:
        """Return the group of each of n ``records`` in each of the ``last`` releases (last, n).

        It is -1 where a record was not in a release.
        """
        if self.fetch is None or not last:
            return np.zeros((0, records), dtype=np.int64)
        return self.fetch(last)


class StaleSettingError(GuaranteeError):
    """The setting that a ledger keeps for a request does not fit the records or thresholds of the same request."""

    def __init__(self) -> None:
        super().__init__(
            "the setting that the ledger holds of the same request does not fit these records or thresholds"
        )


CHOICE = r"^(system|key-file|seed):[0-9a-f]{16}$"


class Persons(BaseModel):
    """The rule for persons with several records.

    Attributes:
        rule: There are none (``refuse``), one, the first or some of each are published, or all are (``count``).
        several: How many persons have several records, where all are published.
        most: How many records a person has at most, or how many are taken at most.
        order: The column by which the first record of each was taken.
        choice: A one-way digest of the key that chose, by which its holder knows it again.
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
        """Return the rule that publishes at most ``limit`` records of each person.

        With ``order`` it is the first record by that column. ``choice`` is the digest of the key that chooses.
        """
        if order is not None:
            return cls(rule="first", order=order, choice=choice)
        return cls(rule="one", choice=choice) if limit == 1 else cls(rule="some", most=limit, choice=choice)

    @property
    def taken(self) -> int | None:
        """Return how many records of each person were chosen at most; None where none were chosen."""
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
    """Return what a record is to a person, in a sentence; ``persons`` is None where no column names them.

    >>> describe_persons(None), describe_persons(Persons(rule="refuse"))
    ('several records may belong to one person, as no column names persons', 'one record is one person: declared')
    """
    return f"{MANY}, as no column names persons" if persons is None else str(persons)


class Records(Protocol):
    """The source, mounted and counted.

    Its shape (``mechanisms.base``) decides in which relations the records lie.
    """

    @property
    def db(self) -> Relations:
        """Return the engine that holds its relations."""

    @property
    def roles(self) -> Roles:
        """Return the columns by role."""

    @property
    def labels(self) -> Sequence[str]:
        """Return the text of every sensitive value, or of every item, in canonical order (m,)."""

    @property
    def counts(self) -> Sequence[int]:
        """Return the number of records with every sensitive value, or with every item (m,)."""

    @property
    def records(self) -> int:
        """Return n, the number of records that can be published."""

    @property
    def source_records(self) -> int:
        """Return the number of all records of the source, including those that are not published."""

    @property
    def suppressed(self) -> int:
        """Return the number of records that the NULL policy leaves out."""

    @property
    def persons(self) -> Persons | None:
        """Return the rule for persons with several records; None where no column names persons."""

    @property
    def history(self) -> History:
        """Return the earlier releases of the same subjects."""

    @property
    def known_by(self) -> Mapping[str, exp.Expr]:
        """Return the expressions over ``source`` by which a ledger knows a record (``id``) and its person (``person``).

        They are texts that do not depend on the type of the column.
        """

    @property
    def has_ids(self) -> bool:
        """Return whether every record has a unique id, by which a ledger follows it."""

    @property
    def keep_predicate(self) -> exp.Expr:
        """Return the condition over relation ``source`` that holds for the records that can be published."""

    def query_names(self, *, follow: bool, values: bool) -> exp.Query:
        """Return the query for the identifiers of records and persons, (id, person).

        Args:
            follow: Whether only records with ids are listed, in the order of ``sort_records``, each with a digest of
                what is published of it (``sql/ledger/traces.sql``).
            values: Whether the text of the sensitive column is added.
        """

    def hash_records(self, key: Key) -> Iterator[HashedRecords]:
        """Yield keyed hashes of the published part of the records, in any order.

        Each hash comes with the number of records that have it; None means one.
        """

    @property
    def published_values(self) -> list[tuple[exp.Expr, str]]:
        """Return the published columns over relation ``source`` with their types, by name; none for item sets."""

    @property
    def order(self) -> Order:
        """Return the rule by which records are ordered before they are placed."""

    def bind_key(self, key: Key) -> Key:
        """Return a key that is derived for these records alone.

        A publisher may keep one key for several releases; the derivation prevents that the random choices in two tables
        are correlated. Where the order is ``portable``, this also makes relation ``hashed``. It has the columns q0..,
        ``code``, a keyed hash ``h`` of the whole record and, where records have ids, their number ``pos``.
        """

    @property
    def packed(self) -> PackedRecords | None:
        """Return the records as integers in canonical order; None where they do not fit into integers."""

    def sort_records(self) -> None:
        """Make the relations, in canonical order, that a mechanism of this shape reads; a second call does nothing."""

    def coded_records(self, *, ordered: bool) -> exp.Query:
        """Return the query for quasi-identifiers (q0..) and rank of the sensitive value (``code``).

        It lists every record that can be published. It exists for tables only, not for item sets.

        Args:
            ordered: Whether records come value by value, each in canonical order; else they come in any order.
        """

    def drop_relations(self) -> None:
        """Drop the relations that ``sort_records`` made."""

    def expose_as(self, name: str) -> None:
        """Make the sorted records readable as ``name``, under the publisher's own column names."""


@dataclass(frozen=True)
class Profile:
    """Counts of a column: all records, those not NULL, different values, and records with the most frequent value."""

    name: str
    type: str
    records: int
    filled: int
    different: int
    most: int

    @property
    def is_unique(self) -> bool:
        """Return whether no two records share a value."""
        return self.filled > 1 and self.different == self.filled
