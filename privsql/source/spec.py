"""Specifications: models of the source, the roles of columns, the release and the mechanism, read from TOML or data."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union

from pydantic import Field, SerializeAsAny, ValidationError, create_model, field_validator, model_validator
from pydantic_core import PydanticCustomError

from privsql.calls import PathLike, as_exact_data, as_path, at_home
from privsql.engine.files import fold_name, is_files, url_scheme
from privsql.errors import EngineError, UsageError
from privsql.mechanisms.contract import BudgetComposition, CategoricalShape, ItemSetShape, Shape, TableShape
from privsql.mechanisms.registry import DEFAULT, PACKAGES, get_mechanism, get_parameters
from privsql.model.parameters import Bins, NullPolicy, Order, Parameters, Positive
from privsql.source.places import WHEREVER, SchemaName, Source, SpecPart, Target, is_table, join_base

if TYPE_CHECKING:
    from collections.abc import Iterable

    from privsql.mechanisms.contract import Mechanism

# Columns --------------------------------------------------------------------------------------------------------------
# The columns that a publisher asks for: which role each has, what NULL means there, and how it is made coarser.

T = TypeVar("T")
DELIMITERS = (",", ";", "\t", "|")


def _look_up(by_column: dict[str, T], name: str) -> T | None:
    """What is given of a column."""
    return {fold_name(key): value for key, value in by_column.items()}.get(fold_name(name))


def _is_empty(value: dict[str, Any] | bool) -> bool:
    return not value


def missing_column_error(name: str | None, known: Iterable[str]) -> UsageError:
    """What is wrong where a source has no such column; one alone may be all of a CSV file's.

    >>> str(missing_column_error("age", ["sex;age"])).partition(", which ")[2]
    "may be several: options = { delimiter = ';' } tells them apart"
    """
    names = list(known)
    between = next((one for one in DELIMITERS if len(names) == 1 and one in names[0]), None)
    hint = f", which may be several: options = {{ delimiter = {between!r} }} tells them apart" if between else ""
    return UsageError(f"column {name!r} is not in the source; it has {', '.join(names)}{hint}")


class Columns(SpecPart):
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
    def _as_tuple(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _require_roles(self) -> Columns:
        self._require_one_kind()
        used: set[str] = set()
        for name in self.names:
            if fold_name(name) in used:
                raise ValueError(f"column {name!r} has two roles")
            used.add(fold_name(name))
        for name in self.nulls:
            if fold_name(name) not in used:
                raise ValueError(f"nulls: column {name!r} has no role")
        if self.categorical and not self.sensitive:
            raise ValueError("categorical says what sensitive columns hold, and there is none")
        self._require_coarsening()
        return self

    def _require_coarsening(self) -> None:
        """``ValueError`` unless bins and levels are of quasi-identifiers, and one of them of each."""
        known, used = {fold_name(name) for name in self.quasi_identifiers}, set()
        for key in ("bins", "levels"):
            for name in getattr(self, key):
                if fold_name(name) not in known:
                    raise ValueError(f"{key}: column {name!r} is no quasi-identifier")
                if fold_name(name) in used:
                    raise ValueError(f"{key}: column {name!r} has bins or levels already")
                used.add(fold_name(name))
                if not getattr(self, key)[name]:
                    raise ValueError(f"{key}: column {name!r} has none")
        for name in self.others:
            if fold_name(name) not in map(fold_name, self.levels):
                raise ValueError(f"others: column {name!r} has no levels")

    def get_coarsening(self, name: str) -> tuple[Bins | None, dict[str, str], str | None]:
        """Of a column its bins, the groups of its values, and the group of those that have none."""
        return _look_up(self.bins, name), _look_up(self.levels, name) or {}, _look_up(self.others, name)

    def _require_one_kind(self) -> None:
        """``ValueError`` unless the columns are those of a table, of item sets or of a contingency table."""
        if self.categories:
            if self.quasi_identifiers or self.sensitive or self.set_columns:
                raise ValueError("categories stand alone: a table of them has no columns of another role")
        elif not self.set_columns:
            for name in ("quasi_identifiers", "sensitive"):
                if not getattr(self, name):
                    raise ValueError(f"columns.{name} is missing; name at least one column")
        elif self.quasi_identifiers or self.sensitive:
            raise ValueError("item sets have no quasi_identifiers and no sensitive columns")
        elif (self.record is None) != (self.item is None) or (self.items and self.item):
            raise ValueError("item sets are one column items (a list), or two columns record and item")

    @property
    def set_columns(self) -> tuple[str, ...]:
        """The columns of item sets: the list, or record and item; none in a table of another kind."""
        return tuple(name for name in (self.items, self.record, self.item) if name is not None)

    @property
    def names(self) -> tuple[str, ...]:
        """All columns that have a role."""
        return (*self.quasi_identifiers, *self.sensitive, *self.set_columns, *self.categories)

    @property
    def shape(self) -> type[Shape]:
        """The shape of the records."""
        return ItemSetShape if self.set_columns else CategoricalShape if self.categories else TableShape

    def null_policy(self, name: str) -> NullPolicy:
        """The NULL policy of a column."""
        policies = {fold_name(key): policy for key, policy in self.nulls.items()}
        sensitive = set(map(fold_name, self.sensitive))
        return policies.get(fold_name(name), "refuse" if fold_name(name) in sensitive else "value")


# Spec -----------------------------------------------------------------------------------------------------------------
# What a publisher asks for: source, roles of the columns, release and mechanism, as validated value objects.
#
# ``privsql.source.spec`` makes one of TOML or plain data, ``privsql.source.keywords`` of flags or keywords.

SHAPES: dict[type[Shape], str] = {
    TableShape: "columns.quasi_identifiers and columns.sensitive",
    ItemSetShape: "columns.items, or record and item",
    CategoricalShape: "columns.categories",
}


class ReleaseSection(SpecPart):
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


class Ledger(SpecPart):
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
    def _require_alone(self) -> Ledger:
        if self.off and (self.database is not None or self.epsilon is not None):
            raise ValueError("off stands alone: without a ledger there is neither a place nor a budget")
        return self


class Spec(SpecPart):
    """A complete request to publish."""

    source: Source
    columns: Columns
    release: ReleaseSection = ReleaseSection()
    mechanism: SerializeAsAny[Parameters]
    ledger: Ledger | None = None

    @field_validator("mechanism", mode="wrap")
    @classmethod
    def _parse_mechanism(cls, value: Any, handler: Any) -> Any:  # noqa: ARG003 (the base is no mechanism)
        """The parameters of the mechanism that ``kind`` names."""
        if isinstance(value, Parameters):
            return value
        if not isinstance(value, dict):
            raise PydanticCustomError("table", "must be a table")
        kind = value.get("kind", DEFAULT)
        if kind not in PACKAGES:
            raise PydanticCustomError(
                "kind", "{kind} is not one of {known}", {"kind": repr(kind), "known": _list_kinds()}
            )
        return get_parameters(kind).model_validate({"kind": kind, **value})

    @model_validator(mode="after")
    def _require_fitting_columns(self) -> Spec:
        shape, columns = self.implementation.shape, self.columns
        if not isinstance(shape, columns.shape):
            fitting = [repr(kind) for kind in PACKAGES if isinstance(get_mechanism(kind).shape, columns.shape)]
            wanted = SHAPES[type(shape)] if columns.shape is TableShape else f"kind = {' or '.join(fitting)}"
            raise ValueError(f"mechanism {self.mechanism.kind!r} and columns do not fit; it needs {wanted}")  # noqa: TRY004
        if isinstance(shape, CategoricalShape):
            _require_same_names(columns.categories, shape.domains(self.mechanism))
        return self

    @model_validator(mode="after")
    def _require_composable(self) -> Spec:
        private = isinstance(self.implementation.composition, BudgetComposition)
        if private and self.source.person is not None and self.source.persons != "one":
            raise ValueError(
                "source.persons: a differentially private release takes one record of each person, and does not refuse "
                "what one record changes; say persons = 'one'"
            )
        if self.source.person is not None and fold_name(self.source.person) in map(fold_name, self.columns.names):
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
    def _require_file_for_schema(self) -> Spec:
        if self.release.schema_ is not None and self.format != "duckdb":
            raise ValueError(f"release.schema: a release in {self.format} has none; leave out one of schema and format")
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _raise_in_one_line(cls, value: Any, handler: Any) -> Any:
        """``UsageError`` in place of pydantic's own, wherever one is made; last, so that it takes in all."""
        try:
            return handler(value)
        except ValidationError as error:
            raise UsageError(_first_error(error)) from error

    @property
    def name(self) -> str:
        """The release's name: as given, else after the table or file."""
        return self.release.name or self.source.default_name

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
    def target(self) -> Target:
        """Return where the release goes."""
        return Target(self.place, self.release.schema_)

    @property
    def implementation(self) -> Mechanism[Any]:
        """Return the mechanism whose parameters ``mechanism`` holds."""
        return get_mechanism(self.mechanism.kind)


def _require_same_names(categories: Iterable[str], domains: Iterable[str]) -> None:
    """``ValueError`` unless every column has its values."""
    wanted, present = ({fold_name(name): name for name in names} for names in (categories, domains))
    for name, label in (wanted | present).items():
        if name not in present:
            raise ValueError(f"mechanism.domains.{label} is missing; give its values, or 'data'")
        if name not in wanted:
            raise ValueError(f"mechanism.domains.{label} is not one of columns.categories")


def redirect_spec(spec: Spec, to: Path | None, form: str | None, schema: str | None = None) -> Spec:
    """The specification with another target, format or schema."""
    if form is not None and form not in ("duckdb", "parquet"):
        raise UsageError(f"--format {form!r} is not one of 'duckdb', 'parquet'")
    release = spec.release
    if form is not None and form != spec.format:
        default = release.to.with_suffix("" if form == "parquet" else ".duckdb") if release.to else None
        release = release.model_copy(update={"format": form, "to": default})
    if to is not None:
        release = release.model_copy(update={"to": to})
    section = release.model_dump(by_alias=True) | ({"schema": schema} if schema is not None else {})
    return Spec.model_validate(dict(spec) | {"release": section})


def _first_error(error: ValidationError) -> str:
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


def _list_kinds() -> str:
    return ", ".join(map(repr, PACKAGES))


def schema() -> str:
    """JSON Schema of a specification, with the parameters of every mechanism."""
    known: Any = Union.__getitem__(tuple(get_parameters(kind) for kind in PACKAGES))
    mechanism: Any = (Annotated[known, Field(discriminator="kind")], ...)
    whole = create_model("Spec", __base__=Spec, __doc__=Spec.__doc__, mechanism=mechanism)
    return json.dumps(whole.model_json_schema(), indent=2) + "\n"


# Reading --------------------------------------------------------------------------------------------------------------
# A specification from TOML, numbers exactly as written, or from plain data; paths in a file are relative to it.

HERE = Path()


def load(path: PathLike, *, source: object | None = None) -> Spec:
    """Read a specification from a TOML file; ``source``: what stands in place of the file that it names, such as a
    table in Python; what else ``[source]`` says of it (id, name, person, persons, query) stays.

    Raises ``EngineError`` if it can't be read and ``UsageError``, naming the key, if it is not valid.
    """
    path = as_path(path)
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = (
            error.strerror if isinstance(error, OSError) else "is no text in UTF-8, as the TOML of a specification is"
        )
        raise EngineError(f"{path}: {reason}") from error
    try:
        raw = tomllib.loads(content, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from error
    return build(raw, base=path.parent, origin=str(path), source=source)


def build(
    raw: Mapping[str, Any],
    *,
    base: PathLike = HERE,
    origin: str = "specification",
    source: object | None = None,
) -> Spec:
    """A validated specification from plain data, as TOML gives it; relative paths are taken from ``base``, ``~`` is the
    home folder.

    A float means the decimal that it prints. ``source``, here or as the key of that name, may be a table in Python or
    the name of a file. Raises ``UsageError``, naming the key, for what is not valid.
    """
    if not isinstance(raw, Mapping):
        raise UsageError(f"{origin}: {type(raw).__name__} is no table of keys and values")
    data, base = dict(raw), as_path(base)
    stated = data.pop("source", None)
    if isinstance(source, str | os.PathLike) and not url_scheme(os.fspath(source)):
        source = os.path.abspath(at_home(Path(source)))  # noqa: PTH100 (a pattern) not from ``base``: a caller says it
    where = as_source_table(stated if source is None else source)
    if source is not None and isinstance(stated, Mapping) and isinstance(where, dict):
        where = {key: stated[key] for key in WHEREVER if key in stated} | where
    try:
        spec = Spec.model_validate(as_exact_data(data) | ({"source": where} if where is not None else {}))
        if spec.source.frame is not None:
            spec.source.frame.refuse_unreadable(spec.columns.names, queried=spec.source.query is not None)
    except UsageError as error:
        raise UsageError(f"{origin}: {error}") from error
    there = spec.source.with_base(base)
    release = spec.release.model_copy(update={"to": join_base(base, spec.place)})
    ledger = spec.ledger
    if ledger is not None and ledger.database is not None:
        ledger = ledger.model_copy(update={"database": join_base(base, ledger.database)})
    return spec.model_copy(update={"source": there, "release": release, "ledger": ledger})


def as_source_table(value: object) -> object:
    """The table ``[source]`` for a table in Python or the path of a file; anything else as it is.

    >>> as_source_table("people.parquet")
    {'file': 'people.parquet'}
    """
    if isinstance(value, str | os.PathLike):
        name = os.fspath(value)
        return {"file" if is_files(name) else "database": name}
    return {"frame": value} if is_table(value) else value
