"""What a publisher asks for: source, roles of the columns, release and mechanism, as validated value objects.

``privsql.source.reading`` makes one of TOML or plain data, ``privsql.source.flags`` of flags or keywords.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import (
    Field,
    SerializeAsAny,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from privsql.engine.names import fold
from privsql.errors import UsageError
from privsql.mechanisms.contract import Budget, Categories, Sets, Shape, Table
from privsql.mechanisms.registry import DEFAULT, PACKAGES, of, parameters
from privsql.model.parameters import Order, Parameters, Positive
from privsql.source.address import SchemaName, address
from privsql.source.columns import Columns
from privsql.source.places import Part, Source

if TYPE_CHECKING:
    from collections.abc import Iterable

SHAPES: dict[type[Shape], str] = {
    Table: "columns.quasi_identifiers and columns.sensitive",
    Sets: "columns.items, or record and item",
    Categories: "columns.categories",
}


class Release(Part):
    """The release's name (that of its view) and where it goes."""

    name: str | None = Field(default=None, description="Name of the release and its view.")
    to: Path | None = Field(default=None, description="Where the release goes.")
    schema_: SchemaName | None = Field(
        default=None,
        alias="schema",
        description="The schema of database file ``to`` that the release becomes; what else that file holds is no part "
        "of it, so the file itself is not handed out. [default: the whole file]",
    )
    format: Literal["duckdb", "parquet"] | None = Field(
        default=None,
        description="duckdb (one file) or parquet (a folder). [default: duckdb; of Spark's tables parquet]",
    )
    order: Order | None = Field(
        default=None,
        description="How records take their places: stream (fast) or portable (by keyed hashes: the same key gives the "
        "same release on every engine). [default: stream; of Spark's tables portable]",
    )


class Ledger(Part):
    """The publisher's private record of releases: one of all sources, in the user's state folder or at ``database``."""

    database: Path | None = Field(
        default=None,
        description="Where the publisher's private ledger lies. [default: $PRIVSQL_LEDGER, or one per user]",
    )
    epsilon: Positive | None = Field(
        default=None,
        description="The most that all differentially private releases of the source may spend together; only "
        "'privsql ledger cap' raises it again.",
    )
    off: bool = Field(default=False, description="Keep no ledger; the release says so.")

    @model_validator(mode="after")
    def _either(self) -> Ledger:
        if self.off and (self.database is not None or self.epsilon is not None):
            raise ValueError("off stands alone: without a ledger there is neither a place nor a budget")
        return self


class Spec(Part):
    """A complete request to publish."""

    source: Source
    columns: Columns
    release: Release = Release()
    mechanism: SerializeAsAny[Parameters]
    ledger: Ledger | None = None

    @field_validator("mechanism", mode="wrap")
    @classmethod
    def _of_its_kind(cls, given: Any, handler: Any) -> Any:  # noqa: ARG003 (the base is no mechanism)
        """The parameters of the mechanism that ``kind`` names."""
        if isinstance(given, Parameters):
            return given
        if not isinstance(given, dict):
            raise PydanticCustomError("table", "must be a table")
        kind = given.get("kind", DEFAULT)
        if kind not in PACKAGES:
            raise PydanticCustomError("kind", "{kind} is not one of {known}", {"kind": repr(kind), "known": _known()})
        return parameters(kind).model_validate({"kind": kind, **given})

    @model_validator(mode="after")
    def _fitting_columns(self) -> Spec:
        shape, columns = of(self.mechanism.kind).shape, self.columns
        if not isinstance(shape, columns.shape):
            fitting = [repr(kind) for kind in PACKAGES if isinstance(of(kind).shape, columns.shape)]
            wanted = SHAPES[type(shape)] if columns.shape is Table else f"kind = {' or '.join(fitting)}"
            raise ValueError(f"mechanism {self.mechanism.kind!r} and columns do not fit; it needs {wanted}")  # noqa: TRY004
        if isinstance(shape, Categories):
            _same_names(columns.categories, shape.domains(self.mechanism))
        return self

    @model_validator(mode="after")
    def _composing(self) -> Spec:
        private = isinstance(of(self.mechanism.kind).composition, Budget)
        if private and self.source.person is not None and self.source.persons != "one":
            raise ValueError(
                "source.persons: a differentially private release takes one record of each person, and does not refuse "
                "what one record changes; say persons = 'one'"
            )
        roles = (*self.columns.quasi_identifiers, *self.columns.sensitive, *self.columns.sets, *self.columns.categories)
        if self.source.person is not None and fold(self.source.person) in map(fold, roles):
            raise ValueError("source.person: the column that names persons is never published; give it no other role")
        if self.source.person is not None and self.columns.item is not None:
            raise ValueError("source.person: rows of an item each are of the record that columns.record names")
        if private and "refuse" in self.columns.nulls.values():
            raise ValueError(
                "columns.nulls: a differentially private release that is refused because of NULL tells of one record; "
                "leave it out (NULL is among all other values, or is no item), or say 'suppress'"
            )
        if private and self.release.order is not None:
            raise ValueError("release.order: a differentially private release places no records; leave it out")
        if self.source.kind == "spark" and self.release.order == "stream":
            raise ValueError("release.order: what lies in Spark has no order that a stream could follow; take portable")
        return self

    @model_validator(mode="after")
    def _one_place(self) -> Spec:
        if self.release.schema_ is not None and self.format != "duckdb":
            raise ValueError(f"release.schema: a release in {self.format} has none; leave out one of schema and format")
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _in_one_line(cls, given: Any, handler: Any) -> Any:
        """``UsageError`` in place of pydantic's own, wherever one is made; last, so that it takes in all."""
        try:
            return handler(given)
        except ValidationError as error:
            raise UsageError(_first(error)) from error

    @property
    def name(self) -> str:
        """The release's name: as given, else after the table or file."""
        return self.release.name or self.source.called

    @property
    def format(self) -> Literal["duckdb", "parquet"]:
        """What the release becomes: as given, else what suits the source."""
        file = self.source.kind != "spark" or self.release.schema_ is not None
        return self.release.format or ("duckdb" if file else "parquet")

    @property
    def order(self) -> Order:
        """How records take their places: as given, else what the source's engine can do."""
        return self.release.order or ("portable" if self.source.kind == "spark" else "stream")

    @property
    def place(self) -> Path:
        """The file or folder that the release becomes, or becomes a schema of."""
        ending = ".duckdb" if self.format == "duckdb" else ""
        return self.release.to or Path(f"{self.name}_release{ending}")

    @property
    def target(self) -> Path:
        """The address of the release: a file, a folder, or a schema of a file."""
        return address(self.place, self.release.schema_)


def _same_names(categories: Iterable[str], domains: Iterable[str]) -> None:
    """``ValueError`` unless every column has its values."""
    wanted, given = ({fold(name): name for name in names} for names in (categories, domains))
    for name, shown in (wanted | given).items():
        if name not in given:
            raise ValueError(f"mechanism.domains.{shown} is missing; give its values, or 'data'")
        if name not in wanted:
            raise ValueError(f"mechanism.domains.{shown} is not one of columns.categories")


def redirected(spec: Spec, to: Path | None, form: str | None, schema: str | None = None) -> Spec:
    """The specification with another target, format or schema."""
    if form is not None and form not in ("duckdb", "parquet"):
        raise UsageError(f"--format {form!r} is not one of 'duckdb', 'parquet'")
    release = spec.release
    if form is not None and form != spec.format:
        default = release.to.with_suffix("" if form == "parquet" else ".duckdb") if release.to else None
        release = release.model_copy(update={"format": form, "to": default})
    if to is not None:
        release = release.model_copy(update={"to": to})
    given = release.model_dump(by_alias=True) | ({"schema": schema} if schema is not None else {})
    return Spec.model_validate(dict(spec) | {"release": given})


def _first(error: ValidationError) -> str:
    """The first thing that is wrong, as ``key: what``."""
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    what = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        what = "there is no such key"
    elif first["type"] == "missing":
        what = "is missing"
    elif first["type"] == "kind":
        where = f"{where}.kind"
    elif first["type"] in ("model_type", "model_attributes_type", "dict_type"):
        what = "must be a table of keys and values, { key = value }"
    elif first["type"] == "literal_error":
        what = f"{first['input']!r} is not one of {first['ctx']['expected']}"
    return f"{where}: {what}" if where and not what.startswith(f"{where}.") else what


def _known() -> str:
    return ", ".join(map(repr, PACKAGES))


def schema() -> str:
    """JSON Schema of a specification, with the parameters of every mechanism."""
    known: Any = Union.__getitem__(tuple(parameters(kind) for kind in PACKAGES))
    mechanism: Any = (Annotated[known, Field(discriminator="kind")], ...)
    whole = create_model("Spec", __base__=Spec, __doc__=Spec.__doc__, mechanism=mechanism)
    return json.dumps(whole.model_json_schema(), indent=2) + "\n"
