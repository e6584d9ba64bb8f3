"""The manifest: what a release says of itself."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from privsql.engine.roles import Field as Column
from privsql.engine.roles import Roles
from privsql.errors import EngineError
from privsql.model.bins import Bins, fits
from privsql.model.parameters import NullPolicy, Version
from privsql.model.records import Persons
from privsql.noise import Origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MANIFEST = "privsql_manifest"
COLUMNS = 1000  # that a release may have
WHOLE = 2**63  # what whole numbers stay below


def _is_empty(value: object) -> bool:
    return not value


class Manifest(BaseModel):
    """What a release says of itself. Nothing in it is secret: no key, no raw value that is not published."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    privsql: Version
    duckdb: Version
    name: str = Field(min_length=1)
    mechanism: str
    algorithm: str
    parameters: dict[str, Any]
    quasi_identifiers: list[Column] = Field(max_length=COLUMNS)
    sensitive: list[Column] = Field(max_length=COLUMNS)
    nulls: dict[str, NullPolicy]
    records: int | None = Field(default=None, ge=0)
    published: int | None = Field(default=None, ge=1)
    suppressed: int | None = Field(default=None, ge=0)
    randomness: Origin
    composition: list[str] = Field(default_factory=list)
    learning_risk: dict[str, float] | None = None
    orders: dict[str, list[str]] = Field(default_factory=dict)
    own_columns: dict[str, dict[str, str]] = Field(default_factory=dict, exclude_if=_is_empty)
    bins: dict[str, Bins] = Field(default_factory=dict, exclude_if=_is_empty)
    groups: dict[str, list[str]] = Field(default_factory=dict, exclude_if=_is_empty)
    place: Literal["schema"] | None = Field(default=None, exclude_if=_is_empty)
    persons: Persons | None = Field(default=None, exclude_if=_is_empty)
    facts: dict[str, Any]
    sql: dict[str, str]

    @property
    def published_records(self) -> int:
        """The stated number; 0 where none is stated."""
        return self.published or 0

    @property
    def roles(self) -> Roles:
        """The published columns."""
        orders = {name: tuple(labels) for name, labels in self.orders.items()}
        return Roles(tuple(self.quasi_identifiers), tuple(self.sensitive), orders)

    def as_table(self) -> pa.Table:
        """(key, value): one row per entry, values as JSON."""
        entries = self.model_dump(mode="json")
        return pa.table({"key": list(entries), "value": [json.dumps(value) for value in entries.values()]})

    def described(self, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What a mechanism describes to a person: the algorithm, the facts and ``more`` of them."""
        return {"algorithm": self.algorithm, **self.facts, **(more or {})}

    @staticmethod
    def of_rows(rows: Iterable[tuple[Any, ...]]) -> Manifest:
        """The manifest from its table; ``EngineError`` if it is not one."""
        try:
            entries = [(key, json.loads(value, **_NUMBERS)) for key, value in rows]
            if len(dict(entries)) < len(entries):
                raise ValueError("an entry stands twice")
            found = Manifest.model_validate(dict(entries))
            found.model_dump_json()  # whatever it says is text of Unicode
            columns = (*found.quasi_identifiers, *found.sensitive)
            if not all(column.is_published for column in columns):
                raise ValueError("a column has no type that is published")
            if not found.orders.keys() <= {column.name for column in columns if column.type == "VARCHAR"}:
                raise ValueError("an order is of no column that is text")
            kinds = {column.name: column.type for column in found.quasi_identifiers}
            if any(not fits(one, kinds.get(name, "")) for name, one in found.bins.items()):
                raise ValueError("bins are of no column that can have them")
            if (
                not found.groups.keys()
                <= {name for name, kind in kinds.items() if kind == "VARCHAR"} - found.bins.keys()
            ):
                raise ValueError("groups are of no column that is text")
            if any(len(set(labels)) < len(labels) for labels in found.orders.values()):
                raise ValueError("an order names a label twice")
        except (ValidationError, ValueError, TypeError, RecursionError) as error:
            raise EngineError("its manifest is damaged or of another version of privsql") from error
        return found


def _whole(digits: str) -> int:
    found = int(digits)
    if abs(found) >= WHOLE:
        raise ValueError("a number is absurd")
    return found


def _finite(digits: str) -> float:
    found = float(digits)
    if not math.isfinite(found):
        raise ValueError("a number is absurd")
    return found


_NUMBERS: dict[str, Any] = {"parse_int": _whole, "parse_float": _finite, "parse_constant": _finite}
