"""The columns that a publisher asks for: which role each has, what NULL means there, and how it is made coarser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import Field, field_validator, model_validator

from privsql.engine.names import fold
from privsql.errors import UsageError
from privsql.mechanisms.contract import Categories, Sets, Shape, Table
from privsql.model.bins import Bins
from privsql.model.parameters import NullPolicy
from privsql.source.places import Part

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")
DELIMITERS = (",", ";", "\t", "|")


def _of(given: dict[str, T], name: str) -> T | None:
    """What is given of a column."""
    return {fold(key): value for key, value in given.items()}.get(fold(name))


def _is_empty(value: dict[str, Any] | bool) -> bool:
    return not value


def missing(name: str | None, known: Iterable[str]) -> UsageError:
    """What is wrong where a source has no such column; one alone may be all of a CSV file's.

    >>> str(missing("age", ["sex;age"])).partition(", which ")[2]
    "may be several: options = { delimiter = ';' } tells them apart"
    """
    names = list(known)
    between = next((one for one in DELIMITERS if len(names) == 1 and one in names[0]), None)
    hint = f", which may be several: options = {{ delimiter = {between!r} }} tells them apart" if between else ""
    return UsageError(f"column {name!r} is not in the source; it has {', '.join(names)}{hint}")


class Columns(Part):
    """The roles of the columns and what happens to NULL in each.

    A table has quasi-identifiers and sensitive columns, or it has item sets: ``items``, a list column, or ``record``
    and ``item``, one row for each item of a record; or ``categories``, the columns of a contingency table. NULL is
    ``value`` (a value of its own; the default for all but sensitive columns), ``suppress`` (the record is left out and
    counted) or ``refuse`` (the default for sensitive columns). In categories NULL is one of the values that no domain
    lists; in item sets it is no item.
    """

    quasi_identifiers: tuple[str, ...] = Field(
        default=(), validate_default=False, description="Quasi-identifiers: what could be known of a person."
    )
    sensitive: tuple[str, ...] = Field(
        default=(), validate_default=False, description="Sensitive column; several are one compound attribute."
    )
    items: str | None = Field(default=None, description="Item sets: the list column that holds them.")
    record: str | None = Field(default=None, description="Item sets, a row per item: the column of the record.")
    item: str | None = Field(default=None, description="Item sets, a row per item: the column of the item.")
    categories: tuple[str, ...] = Field(
        default=(), validate_default=False, description="The columns of a table of categories."
    )
    nulls: dict[str, NullPolicy] = Field(
        default_factory=dict, description="What happens to NULL in a column: value, suppress or refuse."
    )
    bins: dict[str, Bins] = Field(
        default_factory=dict,
        exclude_if=_is_empty,
        description="Bins of a quasi-identifier: a width, { width, origin }, { edges }, or month, quarter, year.",
    )
    levels: dict[str, dict[str, str]] = Field(
        default_factory=dict,
        exclude_if=_is_empty,
        description="The group of each value of a quasi-identifier that is text.",
    )
    others: dict[str, str] = Field(
        default_factory=dict, exclude_if=_is_empty, description="The group of values that levels do not name."
    )
    categorical: bool = Field(
        default=False,
        exclude_if=_is_empty,
        description="Sensitive numbers are codes of categories, however many different ones there are.",
    )

    @field_validator("sensitive", mode="before")
    @classmethod
    def _single(cls, given: Any) -> Any:
        return (given,) if isinstance(given, str) else given

    @model_validator(mode="after")
    def _roles(self) -> Columns:
        self._one_kind()
        seen: set[str] = set()
        for name in self.names:
            if fold(name) in seen:
                raise ValueError(f"column {name!r} has two roles")
            seen.add(fold(name))
        for name in self.nulls:
            if fold(name) not in seen:
                raise ValueError(f"nulls: column {name!r} has no role")
        if self.categorical and not self.sensitive:
            raise ValueError("categorical says what sensitive columns hold, and there is none")
        self._coarser()
        return self

    def _coarser(self) -> None:
        """``ValueError`` unless bins and levels are of quasi-identifiers, and one of them of each."""
        known, seen = {fold(name) for name in self.quasi_identifiers}, set()
        for key in ("bins", "levels"):
            for name in getattr(self, key):
                if fold(name) not in known:
                    raise ValueError(f"{key}: column {name!r} is no quasi-identifier")
                if fold(name) in seen:
                    raise ValueError(f"{key}: column {name!r} has bins or levels already")
                seen.add(fold(name))
                if not getattr(self, key)[name]:
                    raise ValueError(f"{key}: column {name!r} has none")
        for name in self.others:
            if fold(name) not in map(fold, self.levels):
                raise ValueError(f"others: column {name!r} has no levels")

    def coarser(self, name: str) -> tuple[Bins | None, dict[str, str], str | None]:
        """Of a column its bins, the groups of its values, and the group of those that have none."""
        return _of(self.bins, name), _of(self.levels, name) or {}, _of(self.others, name)

    def _one_kind(self) -> None:
        """``ValueError`` unless the columns are those of a table, of item sets or of a contingency table."""
        if self.categories:
            if self.quasi_identifiers or self.sensitive or self.sets:
                raise ValueError("categories stand alone: a table of them has no columns of another role")
        elif not self.sets:
            for name in ("quasi_identifiers", "sensitive"):
                if not getattr(self, name):
                    raise ValueError(f"columns.{name} is missing; name at least one column")
        elif self.quasi_identifiers or self.sensitive:
            raise ValueError("item sets have no quasi_identifiers and no sensitive columns")
        elif (self.record is None) != (self.item is None) or (self.items and self.item):
            raise ValueError("item sets are one column items (a list), or two columns record and item")

    @property
    def sets(self) -> tuple[str, ...]:
        """The columns of item sets: the list, or record and item; none in a table of another kind."""
        return tuple(name for name in (self.items, self.record, self.item) if name is not None)

    @property
    def names(self) -> tuple[str, ...]:
        """All columns that have a role."""
        return (*self.quasi_identifiers, *self.sensitive, *self.sets, *self.categories)

    @property
    def shape(self) -> type[Shape]:
        """The shape of the records."""
        return Sets if self.sets else Categories if self.categories else Table

    def policy(self, name: str) -> NullPolicy:
        """The NULL policy of a column."""
        given = {fold(key): policy for key, policy in self.nulls.items()}
        sensitive = set(map(fold, self.sensitive))
        return given.get(fold(name), "refuse" if fold(name) in sensitive else "value")
