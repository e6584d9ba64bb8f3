"""Specifications: models of their sections, and how they are read from TOML files and plain data."""

from __future__ import annotations

import csv
import json
import os
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    InstanceOf,
    PlainSerializer,
    PrivateAttr,
    SerializeAsAny,
    ValidationError,
    WithJsonSchema,
    create_model,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from privsql.calls import PathLike, as_exact_data, as_path, at_home
from privsql.engine.database import is_spark_session
from privsql.engine.files import DELIMITERS, fold_name, is_files, url_scheme
from privsql.errors import EngineError, UsageError, name_choices, suggest_file, suggest_name
from privsql.mechanisms.base import (
    BudgetComposition,
    CategoricalShape,
    GroupComposition,
    ItemSetShape,
    Mechanism,
    Shape,
    TableShape,
)
from privsql.mechanisms.registry import DEFAULT, KINDS, get_default_mechanism, get_mechanism, get_parameters
from privsql.model.bins import Bins
from privsql.model.parameters import WORDS, Facts, NullPolicy, Order, Parameters, Positive, Wording
from privsql.source.places import WHEREVER, Frame, Source, SpecPart, as_frame, is_table, optional_key
from privsql.source.targets import Address, SchemaName, Target, open_database, require_file_name, target_in

# Columns --------------------------------------------------------------------------------------------------------------
# The roles of columns, the meaning of NULL in each, and how values are made coarser.

T = TypeVar("T")
Levels = Annotated[
    dict[str, str],
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}]}),
]


def _look_up(by_column: dict[str, T], name: str) -> T | None:
    return {fold_name(key): value for key, value in by_column.items()}.get(fold_name(name))


def _is_empty(value: dict[str, Any] | bool) -> bool:
    return not value


class Columns(SpecPart):
    """The roles of the columns, how they are coarsened, and what happens to NULL in each.

    A table has one of three shapes. Its columns are quasi-identifiers and sensitive columns; or item sets (``items`` is
    a list column, or ``record`` and ``item`` have one row for each item of a record); or ``categories``.

    ``bins``, ``levels`` and ``others`` coarsen quasi-identifiers: ``levels`` puts listed values into groups, and
    ``others`` names the group of all other values.

    ``nulls`` says what NULL means in a column. ``value`` makes it a value like others, ``suppress`` leaves the record
    out and counts it, and ``refuse`` forbids it. Sensitive columns refuse NULL by default; for other columns it is a
    value. Categories treat NULL like a value that no domain lists, and item sets ignore it.
    """

    quasi_identifiers: tuple[str, ...] = Field(
        default=(), validate_default=False, description="Quasi-identifiers: columns an attacker may know."
    )
    sensitive: tuple[str, ...] = Field(
        default=(), validate_default=False, description="Sensitive column, or several as one compound."
    )
    items: str | None = optional_key("Item sets: the column with lists of items.")
    record: str | None = optional_key("Item sets with a row per item: the column of the record.")
    item: str | None = optional_key("Item sets with a row per item: the column of the item.")
    categories: tuple[str, ...] = Field(default=(), validate_default=False, description="Columns of a table of counts.")
    nulls: dict[str, NullPolicy] = Field(
        default_factory=dict, description="Treatment of NULL in a column: value, suppress or refuse."
    )
    bins: dict[str, Bins] = Field(
        default_factory=dict,
        exclude_if=_is_empty,
        description="Bins of a quasi-identifier: width, { width, origin }, { edges }, { round, bottom, top }, "
        "{ prefix }, or month, quarter, year.",
    )
    levels: dict[str, Levels] = Field(
        default_factory=dict,
        exclude_if=_is_empty,
        description="Map the values of a text quasi-identifier to groups, or name a CSV file of value and group.",
    )
    others: dict[str, str] = Field(
        default_factory=dict, exclude_if=_is_empty, description="Group of all values that levels do not map."
    )
    categorical: bool = Field(
        default=False,
        exclude_if=_is_empty,
        description="Sensitive numbers are codes of categories, however many there are.",
    )

    @field_validator("quasi_identifiers", "sensitive", "categories", mode="before")
    @classmethod
    def _as_tuple(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _require_roles(self) -> Columns:
        if self.categories:
            if self.quasi_identifiers or self.sensitive or self.set_columns:
                raise ValueError("categories can't be combined with columns of another role")
        elif not self.set_columns:
            for name in ("quasi_identifiers", "sensitive"):
                if not getattr(self, name):
                    raise ValueError(f"columns.{name} is missing; name at least one column")
        elif self.quasi_identifiers or self.sensitive:
            raise ValueError("item sets have no quasi_identifiers and no sensitive columns")
        elif (self.record is None) != (self.item is None) or (self.items and self.item):
            raise ValueError("item sets are one column items (a list), or two columns record and item")
        used: set[str] = set()
        for name in self.names:
            if fold_name(name) in used:
                raise ValueError(f"column {name!r} has two roles; list it once")
            used.add(fold_name(name))
        for name in self.nulls:
            if fold_name(name) not in used:
                raise ValueError(f"nulls: column {name!r} has no role")
        if self.categorical and not self.sensitive:
            raise ValueError("categorical is for sensitive columns, and there is none")
        return self

    @model_validator(mode="after")
    def _require_coarsening(self) -> Columns:
        known, used = {fold_name(name) for name in self.quasi_identifiers}, set()
        pairs = [("bins", *one) for one in self.bins.items()] + [("levels", *one) for one in self.levels.items()]
        for key, name, value in pairs:
            if fold_name(name) not in known:
                raise ValueError(
                    f"{key}: column {name!r} is not a quasi-identifier; add it to columns.quasi_identifiers"
                )
            if fold_name(name) in used:
                raise ValueError(f"{key}: column {name!r} has bins or levels already")
            if not value:
                raise ValueError(f"{key}: column {name!r} has none")
            used.add(fold_name(name))
        for name in self.others:
            if fold_name(name) not in map(fold_name, self.levels):
                raise ValueError(f"others: column {name!r} has no levels")
        return self

    def get_coarsening(self, name: str) -> tuple[Bins | None, dict[str, str], str | None]:
        """Return how the values of a column are coarsened, in bins or in groups.

        Returns:
            The bins of the column, or None; the group of each listed value, empty without groups; and the group of all
            values that are not listed, or None.
        """
        return _look_up(self.bins, name), _look_up(self.levels, name) or {}, _look_up(self.others, name)

    @property
    def set_columns(self) -> tuple[str, ...]:
        """Return the columns of item sets: the list column, or the columns of record and item. Empty for any other
        table.
        """
        return tuple(name for name in (self.items, self.record, self.item) if name is not None)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all columns that have a role."""
        return (*self.quasi_identifiers, *self.sensitive, *self.set_columns, *self.categories)

    @property
    def shape(self) -> type[Shape]:
        """Return the class for the shape of the records: a table with a sensitive column, item sets, or categories."""
        return ItemSetShape if self.set_columns else CategoricalShape if self.categories else TableShape

    def null_policy(self, name: str) -> NullPolicy:
        """Return what happens to NULL in a column: "value", "suppress" or "refuse"."""
        default: NullPolicy = "refuse" if fold_name(name) in map(fold_name, self.sensitive) else "value"
        return _look_up(self.nulls, name) or default


# Spec -----------------------------------------------------------------------------------------------------------------
# A whole specification: source, roles of the columns, release, mechanism and ledger, as validated value objects.

HERE = Path()
SHAPES: dict[type[Shape], str] = {
    TableShape: "columns.quasi_identifiers and columns.sensitive",
    ItemSetShape: "columns.items, or record and item",
    CategoricalShape: "columns.categories",
}


def _wording_key(description: str) -> Any:
    return optional_key(description, max_length=WORDS, exclude_if=lambda text: text is None)


Destination = Annotated[
    Path | SkipJsonSchema[InstanceOf[Address]],
    BeforeValidator(require_file_name),
    PlainSerializer(str, when_used="json"),
]


class ReleaseSection(SpecPart):
    """The section ``[release]``: the release's name and place, and what its report says in the publisher's words."""

    name: str | None = optional_key("Name of the release; its views begin with it.")
    to: Destination | None = optional_key(
        "File or folder to write the release to; with a schema also a Postgres database, postgresql://user@host/database."
    )
    schema_: SchemaName | None = optional_key(
        "Schema of the database that becomes the release. The rest of its file is no part of the release, so do not "
        "hand the file out. [default: the whole file]",
        alias="schema",
    )
    format: Literal["duckdb", "parquet"] | None = optional_key(
        "duckdb (one file) or parquet (a folder). [default: duckdb; for tables of Spark parquet]"
    )
    purpose: str | None = _wording_key("Purpose of the release, for its report.")
    recipient: str | None = _wording_key("Who receives the release, for its report.")
    recipient_controls: str | None = _wording_key("What binds the recipient, such as a contract, for its report.")
    contact: str | None = _wording_key("Whom to ask about the release, for its report.")
    expert: str | None = _wording_key("Who approves the release, for its report.")
    qualification: str | None = _wording_key("What qualifies the expert, for the report.")
    valid_until: str | None = _wording_key("How long the approval holds, for the report.")
    date_of_review: str | None = _wording_key("When the approval is reviewed, for the report.")
    sampling_rate: float | None = optional_key(
        "Share of its population that the table holds, if it is a random sample of it, for the report.",
        gt=0,
        le=1,
        exclude_if=lambda rate: rate is None,
    )
    order: Order | None = optional_key(
        "Order in which records are assigned: stream (fast) or portable (by keyed hashes: the same key "
        "gives the same release on every engine). [default: stream; for tables of Spark portable]"
    )

    _base: Path = PrivateAttr(default=HERE)

    @property
    def base(self) -> Path:
        """Return the folder in which a release is written if the specification does not say where."""
        return self._base

    def with_base(self, base: Path) -> ReleaseSection:
        """Return the section with another ``base``, the folder of a release whose place is not stated."""
        section = self.model_copy()
        section._base = base
        return section

    @property
    def wording(self) -> dict[Wording, str]:
        """Return the texts that the publisher wrote for the report, by their keys in the section."""
        names: tuple[Wording, ...] = get_args(Wording)
        return {name: text for name in names if (text := getattr(self, name))}


class Ledger(SpecPart):
    """The section ``[ledger]``: where the publisher's private record of all releases lies, and its privacy budget."""

    database: Path | None = optional_key(
        "File of the publisher's private ledger. [default: $PRIVSQL_LEDGER, or one per user]"
    )
    epsilon: Positive | None = optional_key(
        "Privacy budget of all differentially private releases of the population together. It can be lowered; only "
        "'privsql ledger cap' raises it."
    )
    off: bool = Field(default=False, description="Write no ledger; the release says so.")

    @model_validator(mode="after")
    def _require_alone(self) -> Ledger:
        if self.off and (self.database is not None or self.epsilon is not None):
            raise ValueError("off can't be combined with other keys: without a ledger there is no place and no budget")
        return self


SECTIONS: dict[str, type[SpecPart]] = {
    "source": Source,
    "columns": Columns,
    "release": ReleaseSection,
    "ledger": Ledger,
}  # the section of the mechanism has a model for each kind
SECTION_NAMES = (*SECTIONS, "mechanism")


class Spec(SpecPart):
    """A specification: everything that a publication depends on, except its key."""

    source: Source
    columns: Columns
    release: ReleaseSection = ReleaseSection()
    mechanism: SerializeAsAny[Parameters]
    ledger: Ledger | None = None

    @field_validator("mechanism", mode="wrap")
    @classmethod
    def _parse_mechanism(cls, value: Any, handler: Any) -> Any:
        """Return the section ``[mechanism]`` as the parameters of the mechanism that its ``kind`` names."""
        if isinstance(value, Parameters):
            return value
        if not isinstance(value, dict):
            raise PydanticCustomError("table", "must be a table")
        kinds = find_kinds(value)
        if len(kinds) > 1:
            raise PydanticCustomError(
                "kind",
                "{algorithm} is an algorithm of {kinds}; choose one of them",
                {"algorithm": value["algorithm"], "kinds": " and ".join(kinds)},
            )
        (kind,) = kinds
        if kind not in KINDS:
            raise PydanticCustomError(
                "kind", "{kind} is not one of {known}", {"kind": repr(kind), "known": ", ".join(map(repr, KINDS))}
            )
        return get_parameters(kind).model_validate({"kind": kind, **value})

    @model_validator(mode="after")
    def _require_fitting_columns(self) -> Spec:
        shape, columns = self.implementation.shape, self.columns
        if not isinstance(shape, columns.shape):
            fitting = [repr(kind) for kind in KINDS if isinstance(get_default_mechanism(kind).shape, columns.shape)]
            wanted = f"mechanism.kind = {name_choices(fitting)}"
            if columns.shape is TableShape:
                wanted = next(text for one, text in SHAPES.items() if isinstance(shape, one))
            raise ValueError(f"mechanism {self.mechanism.kind!r} and columns do not fit; it needs {wanted}")
        if isinstance(shape, CategoricalShape):
            named = (columns.categories, shape.domains(self.mechanism))
            wanted_names, present = ({fold_name(name): name for name in names} for names in named)
            for name, label in (wanted_names | present).items():
                if name not in present:
                    raise ValueError(f"mechanism.domains.{label} is missing; give its values, or 'data'")
                if name not in wanted_names:
                    raise ValueError(f"mechanism.domains.{label} is not one of columns.categories")
        return self

    @model_validator(mode="after")
    def _require_total(self) -> Spec:
        """Check that the sensitive value of a record never decides whether the record is published.

        Such a decision would reveal something of the value. The check concerns only specifications with a public list
        of the sensitive values, whose releases spend a privacy budget.

        Returns:
            The specification, in which NULL is a value of the sensitive columns.

        Raises:
            ValueError: NULL in a sensitive column would leave a record out or be refused, or the values of a person's
                records would decide which of them is published.
        """
        shape, columns = self.implementation.shape, self.columns
        if not isinstance(shape, TableShape) or shape.listed(self.mechanism) is None:
            return self
        named = [name for name in columns.nulls if fold_name(name) in map(fold_name, columns.sensitive)]
        if strict := [name for name in named if columns.nulls[name] != "value"]:
            raise ValueError(
                f"columns.nulls: {strict[0]!r} is sensitive, and its NULL is a value, or counts as one that is not "
                "listed; leaving out or refusing a record would reveal its value"
            )
        if self.source.chooses_records and self.source.persons != "first":
            raise ValueError(
                "source.persons: which record of a person is taken depends on its values; 'first' takes the first by "
                "source.order, a column that is neither sensitive nor derived from that; 'count' publishes all, and r "
                "records of a person cost r times epsilon"
            )
        nulls = columns.nulls | dict.fromkeys(columns.sensitive, "value")
        return self.model_copy(update={"columns": columns.model_copy(update={"nulls": nulls})})

    @model_validator(mode="after")
    def _require_composable(self) -> Spec:
        composition = self.implementation.composition
        private = isinstance(composition, BudgetComposition) and composition.unit == "presence"
        several = self.record_limit > 1
        if several and (self.source.person is None or self.source.persons != "some"):
            raise ValueError(
                f"mechanism.max_records = {self.record_limit} limits the records of a person; name the column of "
                "persons as source.person, and say source.persons = 'some'"
            )
        if self.source.persons == "some" and not several:
            raise ValueError(
                "source.persons = 'some' needs a differentially private mechanism, with mechanism.max_records of 2 or "
                "more: so many records of each person are taken"
            )
        gathered = self.gathers_persons
        if self.source.person is not None and self.columns.item is not None and not gathered:
            raise ValueError(
                "source.person: a row is an item here, and columns.record names who has it; name the same column as "
                "source.person, without persons, if these are persons"
            )
        if private and self.source.person is not None and not self.source.chooses_records and not gathered:
            raise ValueError(
                "source.persons: a differentially private release can't refuse a table because of one record; say "
                "source.persons = 'one', or 'some' with mechanism.max_records"
            )
        published = [] if gathered else [fold_name(name) for name in self.columns.names]
        if self.source.person is not None and fold_name(self.source.person) in published:
            raise ValueError("source.person: the column that names persons is never published; give it no other role")
        order = self.source.order
        if order is not None and fold_name(order) in map(
            fold_name, (*self.columns.sensitive, *self.columns.categories)
        ):
            raise ValueError(
                f"source.order: {order!r} is sensitive, so the record that is taken would tell of its value; name "
                "another column"
            )
        if private and "refuse" in self.columns.nulls.values():
            raise ValueError(
                "columns.nulls: a refusal because of NULL would reveal one record of a differentially private release; "
                "leave it out (NULL is among all other values, or is no item), or say 'suppress'"
            )
        if isinstance(composition, BudgetComposition) and self.release.order is not None:
            raise ValueError("release.order: a differentially private release places no records; leave it out")
        there = self.source.traits
        if there.assigns and self.source.id is not None and isinstance(composition, GroupComposition):
            raise ValueError(
                "source.id: only DuckDB can follow records from release to release, and the source lies in "
                f"{there.title}; leave out id, or name persons"
            )
        if there.assigns and self.release.order == "stream":
            raise ValueError(
                f"release.order = 'stream' needs a source that DuckDB reads, not {there.title}; say 'portable'"
            )
        return self

    @property
    def gathers_persons(self) -> bool:
        """Return whether each record is the set of all items of one person, as the specification says."""
        record, person = self.columns.record, self.source.person
        named = record is not None and person is not None and fold_name(record) == fold_name(person)
        return named and self.source.persons in (None, "refuse")

    @property
    def record_limit(self) -> int:
        """Return how many records of each person are published at most, where not all of them are published."""
        return int(getattr(self.mechanism, "max_records", 1))

    @model_validator(mode="after")
    def _require_file_for_schema(self) -> Spec:
        if self.release.schema_ is not None and self.format != "duckdb":
            raise ValueError(f"release.schema: a release in {self.format} has none; leave out one of schema and format")
        to = self.release.to
        if isinstance(to, Address) and to.is_folder and self.release.schema_ is not None:
            raise ValueError("release.schema: a folder has none")
        if isinstance(to, Address) and not to.is_folder and self.release.schema_ is None:
            raise ValueError("release.schema: a release in a Postgres database is a schema of it; name one")
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _raise_in_one_line(cls, value: Any, handler: Any) -> Any:
        """Return the validated specification.

        This validator comes last, so that it catches the errors of all others.

        Raises:
            UsageError: The specification is invalid; the message is pydantic's first error in one line.
        """
        try:
            return handler(value)
        except ValidationError as error:
            raise UsageError(_first_error(error)) from error

    @property
    def name(self) -> str:
        """Return the release's name, by default that of the table or file."""
        return self.release.name or self.source.default_name

    @property
    def format(self) -> Literal["duckdb", "parquet"]:
        """Return the release's format, by default one that suits the source."""
        file = not self.source.traits.assigns or self.release.schema_ is not None
        return self.release.format or ("duckdb" if file else "parquet")

    @property
    def order(self) -> Order:
        """Return the order in which records are assigned to buckets; by default one that suits the source's engine."""
        return self.release.order or ("portable" if self.source.traits.assigns else "stream")

    @property
    def target(self) -> Target:
        """Return the file or folder that becomes the release, or the schema of a file or a server."""
        ending = ".duckdb" if self.format == "duckdb" else ""
        opened, to = self.release.opened, self.release.to
        if opened is not None and self.release.schema_ is not None:
            return target_in(opened, self.release.schema_)
        if isinstance(to, Address):
            frame = self.source.frame
            session = frame.table.sparkSession if frame is not None and frame.in_spark else None
            return to.make_target(self.release.schema_, session)
        return Target(to or self.release.base / f"{self.name}_release{ending}", self.release.schema_)

    @property
    def is_private(self) -> bool:
        """Return whether the release spends a privacy budget.

        Messages, types and exit codes must then not depend on single records, since that would reveal something.
        """
        return isinstance(self.implementation.composition, BudgetComposition)

    @property
    def frame(self) -> Frame | None:
        """Return the source if it is a table in Python; None otherwise.

        For a release that spends a privacy budget, its columns are converted so that no record can change how
        the others are read.
        """
        frame = self.source.frame
        return frame if frame is None or not self.is_private else frame.by_value(self.columns.items)

    @property
    def implementation(self) -> Mechanism[Any, Facts]:
        """Return the object that implements the mechanism of the section ``[mechanism]``."""
        return get_mechanism(self.mechanism.kind, self.mechanism.algorithm)


def bind_connection(spec: Spec, connection: object | None) -> Spec:
    """Return the specification with its source and release in the database that a caller's connection has open.

    A release in a schema lies in the connection's current database, unless ``release.to`` names another database that
    the connection has open. If ``connection`` is None, the specification is returned as it is.

    Raises:
        UsageError: The connection has neither the source nor the release open.
    """
    if connection is None:
        return spec
    database, to = spec.source.database, spec.release.to
    source = spec.source.opened or (open_database(connection, database) if database is not None else None)
    in_schema = spec.release.schema_ is not None
    release = open_database(connection, to) if in_schema and not isinstance(to, Address) else None
    in_session = is_spark_session(connection) and spec.source.traits.assigns
    if source is None and release is None and not in_session:
        raise UsageError("connection: neither the source nor the release lies in it; give table or query, or schema")
    parts = {"source": spec.source.with_open_database(source), "release": spec.release.with_open_database(release)}
    return spec.model_copy(update=parts)


LIST, WHOLE, SWITCH = "must be a list, such as ['a', 'b']", "must be a whole number", "must be true or false"
NEEDED_TYPES = {
    "tuple_type": LIST, "list_type": LIST, "set_type": LIST, "int_type": WHOLE, "int_parsing": WHOLE,
    "int_from_float": WHOLE, "bool_type": SWITCH, "bool_parsing": SWITCH, "string_type": "must be a text",
}  # fmt: skip


def _first_error(error: ValidationError) -> str:
    """Return pydantic's first error in one line, as ``key: what is wrong``."""
    listed = error.errors(include_url=False)
    first = next((one for one in listed if one["type"] in ("extra_forbidden", "kind")), listed[0])
    where = ".".join(map(str, first["loc"]))
    what = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        what = _explain_unknown_key([str(one) for one in first["loc"]])
    elif first["type"] == "missing":
        what = "is missing"
    elif first["type"] == "kind":
        where = f"{where}.kind"
    elif first["type"] in ("model_type", "model_attributes_type", "dict_type"):
        what = "must be a table of keys and values, { key = value }"
    elif first["type"] in NEEDED_TYPES:
        what = NEEDED_TYPES[first["type"]]
    elif first["type"] == "literal_error":
        what = f"{first['input']!r} is not one of {first['ctx']['expected']}"
    return f"{where}: {what}" if where and not what.startswith(f"{where}.") else what


def _explain_unknown_key(place: list[str]) -> str:
    """Return the error message for an unknown key.

    It suggests the key with the most similar spelling, or the section that has a key of this name.

    Args:
        place: The path of the key: section, key, ..
    """
    *section, name = place
    known = list_keys()
    kinds = [kind for kind in KINDS if section == ["mechanism"] and name in get_parameters(kind).model_fields]
    if kinds:
        return f"this mechanism has no such key; it is one of {name_choices(kinds)}"
    near = suggest_name(name, known.get(".".join(section), ()) if section else SECTION_NAMES)
    if not near and (places := [f"{one}.{name}" for one, names in known.items() if name in names]):
        near = f", did you mean {name_choices(places)}?"
    return "there is no such key" + (near or "; 'privsql init --schema' has all of them")


def list_keys() -> dict[str, set[str]]:
    """Return the keys of every section, and of the tables inside a section, by the dotted name of the section or table.

    For ``[mechanism]`` these are the keys of all mechanisms together.
    """
    known: dict[str, set[str]] = {}

    def add(place: str, model: type[BaseModel]) -> None:
        for name, field in model.model_fields.items():
            key = field.alias or name
            known.setdefault(place, set()).add(key)
            tables = [one for one in get_args(field.annotation) if isinstance(one, type) and issubclass(one, BaseModel)]
            for table in tables if get_origin(field.annotation) is not dict else ():
                add(f"{place}.{key}", table)

    for section, model in SECTIONS.items():
        add(section, model)
    for kind in KINDS:
        add("mechanism", get_parameters(kind))
    return known


def schema() -> str:
    """Return the JSON Schema of a specification, with the parameters of every mechanism."""
    known: Any = Union.__getitem__(tuple(get_parameters(kind) for kind in KINDS))
    mechanism: Any = (Annotated[known, Field(discriminator="kind")], ...)
    whole = create_model("Spec", __base__=Spec, __doc__=Spec.__doc__, mechanism=mechanism)
    return json.dumps(whole.model_json_schema(), indent=2) + "\n"


# Reading --------------------------------------------------------------------------------------------------------------
# Read a specification from TOML, with exact numbers, or from plain data. Paths in a file are relative to the file.
# Options and keywords of a caller change the data before they are validated.

Changes = Mapping[tuple[str, ...], Any]  # new values by the path of their key: ("mechanism", "threshold")


def load(path: PathLike, *, source: object | None = None) -> Spec:
    """Read a specification from a TOML file.

    Args:
        path: The file.
        source: A table in Python, or a file, in place of the source in the TOML file. The keys id, person, persons,
            population and query of ``[source]`` stay. None keeps the source.

    Raises:
        EngineError: The file can't be read.
        UsageError: The specification is invalid; the message names the key.
    """
    path = as_path(path)
    return build(read_toml(path), base=path.parent, origin=str(path), source=source)


def read_toml(path: Path) -> dict[str, Any]:
    """Return the contents of a TOML file, with decimal numbers exactly as they are written."""
    try:
        content = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        hint = f"'privsql init SOURCE --output {path.name}' writes one"
        raise EngineError(f"{path}: no such file{suggest_file(path)}; {hint}") from error
    except OSError as error:
        raise EngineError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise EngineError(f"{path}: is no text in UTF-8, as the TOML of a specification is") from error
    try:
        return tomllib.loads(content, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from error


def build(
    raw: Mapping[str, Any], *, base: PathLike = HERE, origin: str = "specification", source: object | None = None
) -> Spec:
    """Return a validated specification from plain data, in the form that TOML gives.

    A float means the decimal number that Python prints for it.

    Args:
        raw: The sections as nested dictionaries.
        base: The folder from which relative paths are taken; ``~`` is the home folder.
        origin: What messages call the specification.
        source: A table in Python or the name of a file, in place of the section ``[source]``; None keeps that section.
            The table may also be the value of ``source`` in ``raw``.

    Raises:
        UsageError: The data are invalid; the message names the key.
    """
    if not isinstance(raw, Mapping):
        raise UsageError(f"{origin}: {type(raw).__name__} is not a table of keys and values")
    stated = raw.get("source")
    if isinstance(source, str | os.PathLike) and not url_scheme(os.fspath(source)):
        source = os.path.abspath(at_home(Path(source)))
    where = as_source_table(stated if source is None else source)
    if source is not None and isinstance(stated, Mapping) and isinstance(where, dict):
        where = {key: stated[key] for key in WHEREVER if key in stated} | where
    return build_changed({**raw, "source": where}, {}, base=as_path(base), origin=origin)


UNDECIDED = "decide"  # the section in which ``init`` asks the publisher


def describe_undecided(asked: object) -> str:
    """Return the error message about a section ``[decide]``, in which ``init`` has left questions to the publisher."""
    names = list(asked) if isinstance(asked, Mapping) else []
    move = "values to [mechanism], " if "values" in names else ""
    what = f" asks about {', '.join(names)}" if names else " is there"
    return (
        f"[{UNDECIDED}]{what}: move {move}columns to columns.quasi_identifiers or leave them out, then delete the "
        "section; 'privsql init --accept' confirms values and leaves columns out"
    )


def build_changed(
    raw: Mapping[str, Any], changes: Changes, *, base: Path = HERE, origin: str = "specification"
) -> Spec:
    """Return a validated specification from plain data, with changes by the caller.

    Args:
        raw: The sections, as TOML gives them; a section may already be validated.
        changes: New values by path. Relative file names in them are taken from the working directory, those in ``raw``
            from ``base``.
        base: The folder of the specification. A release is also written there if the specification does not say where.
        origin: What messages call the specification; empty if there are only changes.

    Raises:
        UsageError: The data are invalid; the message names the key.
    """
    if UNDECIDED in raw:
        raise UsageError(f"{origin}: {describe_undecided(raw[UNDECIDED])}")
    try:
        data = {key: as_source_table(value) if key == "source" else value for key, value in raw.items()}
        data = _change({key: value for key, value in data.items() if value is not None}, changes, base)
        where = data.pop("source", None)
        if isinstance(where, Mapping) and "frame" in where:
            where = {**where, "frame": as_frame(where["frame"], discreet=_is_private(data.get("mechanism")))}
        data = _read_levels(as_exact_data(data))
        spec = Spec.model_validate(data | ({"source": where} if where is not None else {}))
        if (frame := spec.frame) is not None:
            frame.refuse_unreadable(spec.columns.names, queried=spec.source.query is not None)
    except UsageError as error:
        raise UsageError(f"{origin}: {error}" if origin else str(error)) from error
    return spec.model_copy(update={"release": spec.release.with_base(base)})


def change_spec(spec: Spec, changes: Changes) -> Spec:
    """Return a specification with some keys changed; the result is validated as a whole.

    Args:
        spec: The specification.
        changes: The new values by path, such as {("mechanism", "threshold"): "0.1"}.
    """
    if not changes:
        return spec
    changed = build_changed(dict(spec), changes, base=spec.release.base, origin="")
    parts = {"source": spec.source, "release": spec.release}
    return changed.model_copy(
        update={name: getattr(changed, name).with_open_database(one.opened) for name, one in parts.items()}
    )


def _change(data: dict[str, Any], changes: Changes, base: Path) -> dict[str, Any]:
    """Return the sections of a specification with changes applied.

    If the mechanism changes, its former parameters are dropped. If the ledger is switched off, its other keys are
    dropped. If the format changes, the file of the release gets the ending of the new format.

    Args:
        data: The sections.
        changes: New values by path. Relative file names in them are taken from the working directory.
        base: The folder from which relative file names in ``data`` are taken.
    """
    data = join_paths(data, base)
    kind, stated, to = changes.get(("mechanism", "kind")), data.get("mechanism"), _get(data, "release", "to")
    if kind is not None and kind not in find_kinds(stated):
        data["mechanism"] = {}
    if changes.get(("ledger", "off")) is True:
        data["ledger"] = {}
    if isinstance(to, str | Path) and (form := changes.get(("release", "format"))) is not None:
        before = _get(data, "release", "format") or ("duckdb" if Path(to).suffix else "parquet")
        ending = "" if form == "parquet" else ".duckdb"
        data = assign(data, ("release", "to"), to if form == before else Path(to).with_suffix(ending))
    for path, value in changes.items():
        data = assign(data, path, value)
    return join_paths(data, HERE)


def _get(data: Mapping[str, Any], section: str, key: str) -> Any:
    """Return the value of ``key`` in a section, which may be plain data or validated; None if it is not set."""
    part = data.get(section)
    return part.get(key) if isinstance(part, Mapping) else getattr(part, key, None)


def assign(data: Any, path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return a copy of nested dictionaries with a value set at a path; missing dictionaries on the way are created."""
    table = _dump_stated(data) if isinstance(data, BaseModel) else dict(data) if isinstance(data, Mapping) else {}
    first, *rest = path
    return {**table, first: assign(table.get(first), tuple(rest), value) if rest else value}


def _dump_stated(part: BaseModel) -> dict[str, Any]:
    """Return a validated section as a dictionary of the keys that the publisher wrote, so that keys can be changed.

    Values are plain data, as in TOML. Only a table in Python, an address with its password, and the place of a release
    stay the objects that they are.
    """
    stated = part.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    kept = {key: getattr(part, key, None) for key in ("uri", "frame", "to")}
    return stated | {key: value for key, value in kept.items() if value is not None}


def join_paths(data: dict[str, Any], base: Path) -> dict[str, Any]:
    """Return the sections of a specification with relative paths joined to a folder; ``~`` is the home folder."""
    for section, key in (("source", "database"), ("source", "file"), ("release", "to"), ("ledger", "database")):
        part = data.get(section)
        if isinstance(part, Mapping) and key in part:
            place = require_file_name(part[key]) if key == "to" else part[key]
            data = {**data, section: {**part, key: _join_path(base, place)}}
    levels = _get(data, "columns", "levels")
    if isinstance(data.get("columns"), Mapping) and isinstance(levels, Mapping):
        joined = {name: _join_path(base, one) for name, one in levels.items()}
        data = {**data, "columns": {**data["columns"], "levels": joined}}
    return data


def _join_path(base: Path, place: Any) -> Any:
    """Return a path or a list of paths joined to a folder. Addresses and other values are returned as they are."""
    if isinstance(place, list | tuple):
        return [_join_path(base, one) for one in place]
    if not isinstance(place, str | os.PathLike) or not os.fspath(place) or url_scheme(os.fspath(place)):
        return place
    return str(base / at_home(Path(place)))


def find_kinds(mechanism: object) -> list[str]:
    """Return the kinds of mechanism, such as "bucketize", that a section ``[mechanism]`` can mean.

    If the section names a kind, it is the only one. Otherwise the stated algorithm decides: the default kind is the
    only one if it has that algorithm, or if no kind has it. Else the result is all kinds that have it.
    """
    if isinstance(mechanism, Parameters):
        return [mechanism.kind]
    stated = mechanism if isinstance(mechanism, Mapping) else {}
    if "kind" in stated:
        return [str(stated["kind"])]
    algorithm = stated.get("algorithm")
    having = [kind for kind, classes in KINDS.items() if any(algorithm in names for names in classes.values())]
    return [DEFAULT] if not having or DEFAULT in having else having


def _is_private(mechanism: object) -> bool:
    """Return whether an unvalidated section ``[mechanism]`` asks for a release that spends a privacy budget.

    For an unknown kind the answer is yes, which is the cautious one.
    """
    stated = mechanism if isinstance(mechanism, Mapping) else {}
    kind = find_kinds(stated)[0]
    if kind not in KINDS:
        return True
    algorithm = stated.get("algorithm", get_parameters(kind).model_fields["algorithm"].default)
    return isinstance(get_mechanism(kind, algorithm).composition, BudgetComposition)


def _read_levels(data: dict[str, Any]) -> dict[str, Any]:
    """Return the specification's data, with each file name in ``columns.levels`` replaced by the groups that the file
    holds.
    """
    columns = data.get("columns")
    levels = columns.get("levels") if isinstance(columns, Mapping) else None
    if not isinstance(columns, Mapping) or not isinstance(levels, Mapping):
        return data
    read = {
        name: _read_hierarchy(Path(one), f"columns.levels.{name}") if isinstance(one, str) else one
        for name, one in levels.items()
    }
    return {**data, "columns": {**columns, "levels": read}}


def _read_hierarchy(path: Path, key: str) -> dict[str, str]:
    """Return the group of each value, read from the first two columns of a CSV file.

    Args:
        path: The file.
        key: The key of the specification that names the file, for messages.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is no text in UTF-8"
        raise EngineError(f"{path}: {why}; {key} names a CSV file of value and group") from error
    first = text.partition("\n")[0]
    delimiter = next((one for one in DELIMITERS if one in first), ",")
    groups: dict[str, str] = {}
    for row in csv.reader(text.splitlines(), delimiter=delimiter):
        if not row or (not groups and row[:2] == ["value", "group"]):
            continue
        if len(row) < 2:
            raise UsageError(f"{key}: {path}: the line {row[0]!r} has no group; each line is a value and its group")
        if groups.setdefault(row[0], row[1]) != row[1]:
            raise UsageError(
                f"{key}: {path}: {row[0]!r} is in two groups, {groups[row[0]]!r} and {row[1]!r}; remove one"
            )
    return groups


def as_source_table(value: object) -> Any:
    """Return the section ``[source]`` for a table in Python or for the path of a file.

    Any other value is returned as it is.

    >>> as_source_table("people.parquet")
    {'file': 'people.parquet'}
    """
    if isinstance(value, str | os.PathLike):
        name = os.fspath(value)
        return {"file" if is_files(name) else "database": name}
    return {"frame": value} if is_table(value) else value
