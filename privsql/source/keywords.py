"""Build specifications from the command line's flags and from keywords of Python's functions."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, Union, get_args, get_origin

from privsql.calls import PathLike, as_exact_data, as_path, at_home, refuse_unknown_keywords
from privsql.engine.files import WILD, find_files, redact_secrets, url_scheme
from privsql.engine.progress import RUNNING
from privsql.errors import EngineError, UsageError
from privsql.mechanisms.contract import CategoricalShape, ItemSetShape, TableShape
from privsql.mechanisms.registry import DEFAULT, PACKAGES, get_mechanism, get_parameters
from privsql.source.places import Csv, Source, as_frame, is_table
from privsql.source.spec import Columns, Ledger, ReleaseSection, Spec, as_source_table, build, load, redirect_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

    from privsql.engine.progress import Options
    from privsql.keyed_random import Key
    from privsql.model.manifest import Manifest

# Flags ----------------------------------------------------------------------------------------------------------------
# A specification from flags: one flag for every key that a specification has, read off its models.
#
# A flag is called as its key is, in the command line's way of writing; those of ``[ledger]`` say so. What is given is
# read as TOML reads it where the key is a number or a table (``0.02`` exactly, ``{ default = 0.1, HIV = 0.05 }``), and
# is a text otherwise.

SECTIONS: dict[str, type[BaseModel]] = {
    "source": Source,
    "columns": Columns,
    "release": ReleaseSection,
    "ledger": Ledger,
}
BY_ARGUMENT = {("source", key) for key in ("database", "file", "postgres", "mysql", "ducklake", "frame")}  # no flags
SOURCE_NAME = ("source", "name")  # --source-name; --name is the release's
SPELLED = {"quasi_identifiers": ("--qi",), "algorithm": ("--algorithm", "--mechanism")}  # others: as the key is
TAKEN = ("source", "seed", "key_file", "replace", "allow_composition", "memory_limit", "threads", "json", "help")
KIND = "kind"
NEEDED = {TableShape: ("sensitive", "quasi_identifiers"), ItemSetShape: ("items",), CategoricalShape: ("categories",)}


@dataclass(frozen=True)
class Flag:
    """A flag and the key that it stands for; ``name``: what it is called, as an identifier."""

    section: str
    key: str
    name: str
    fields: dict[str, FieldInfo]  # by kind; of the other sections: by the section

    @property
    def spellings(self) -> tuple[str, ...]:
        """What is typed."""
        return SPELLED.get(self.name, ("--" + self.name.replace("_", "-"),))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The mechanisms that have it; none for what belongs to every request."""
        return tuple(self.fields) if self.section == "mechanism" and self.key != KIND else ()

    @property
    def form(self) -> Literal["switch", "names", "pairs", "one"]:
        """How it is given: without a value, as names with commas, as NAME=VALUE (repeatable), or as one value."""
        kind = _bare_type(self._first_field.annotation)
        return "switch" if kind is bool else "names" if kind is tuple else "pairs" if kind is dict else "one"

    @property
    def help(self) -> str:
        """What the models say of it, the values that there are, and the default: by mechanism where these differ."""
        texts = {kind: _describe_values(field) for kind, field in self.fields.items()}
        if self.key == KIND:
            texts = {KIND: f"The mechanism: {', '.join(self.fields)}. [default: {DEFAULT}]"}
        elif len(set(texts.values())) > 1:
            texts = {"": "; ".join(f"{kind}: {text}" for kind, text in texts.items())}
        return " ".join(filter(None, (self._first_field.description, *dict.fromkeys(texts.values()))))

    @property
    def _first_field(self) -> FieldInfo:
        return next(iter(self.fields.values()))

    def parse_value(self, raw: Any, kind: str) -> Any:
        """What a specification would hold in place of what was given."""
        annotation = self.fields.get(kind, self._first_field).annotation
        if self.form == "names":
            return [name.strip() for name in raw.split(",") if name.strip()]
        if self.form == "pairs":
            return {
                name: _parse_text(value, get_args(annotation)[1]) for name, _, value in (g.partition("=") for g in raw)
            }
        return raw if self.form == "switch" else _parse_text(raw, annotation)


def list_flags() -> dict[str, Flag]:
    """All flags by their names, section by section. Where a name is taken, the section stands before it."""
    return _collect_flags(tuple(PACKAGES))


@cache
def _collect_flags(kinds: tuple[str, ...]) -> dict[str, Flag]:
    flags: dict[str, Flag] = {}
    for section, key, fields in _iterate_keys(kinds):
        prefixed = section == "ledger" or (section, key) == SOURCE_NAME or key in (*flags, *TAKEN)
        name = f"{section}_{key}" if prefixed else key
        flags[name] = Flag(section, key, name, fields)
    return flags


def _iterate_keys(kinds: tuple[str, ...]) -> Iterator[tuple[str, str, dict[str, FieldInfo]]]:
    """The keys of a specification by section; those of ``[mechanism]`` with the mechanisms that have them."""
    for section, model in SECTIONS.items():
        for key, field in model.model_fields.items():
            if (section, key) not in BY_ARGUMENT:
                yield section, field.alias or key, {section: field}
    keys: dict[str, dict[str, FieldInfo]] = {}
    for kind in kinds:
        for key, field in get_parameters(kind).model_fields.items():
            keys.setdefault(key, {})[kind] = field
    yield from (("mechanism", key, fields) for key, fields in keys.items())


@dataclass(frozen=True)
class InputStyle:
    """How a publisher says what is wanted, and is told what is wrong.

    ``spell``: how a flag is called; ``read``: what a specification would hold in place of what was given.
    """

    spell: Callable[[Flag], str]
    read: Callable[[Flag, Any, str], Any]
    file: str


TYPED = InputStyle(lambda flag: flag.spellings[0], Flag.parse_value, "a specification file")


def spec_from_flags(source: Path | str, flags: Mapping[str, Any]) -> Spec:
    """The specification in a TOML file, or of any other source the one that flags give, by their names.

    Raises ``UsageError`` for flags that are missing, that do not go with a file, or with the kind of the mechanism.
    """
    name = os.fspath(source)
    if name.lower().endswith(".toml"):
        return adjust_spec(load(name), flags, TYPED)
    return build(as_plain_spec(name, redact_secrets(name), flags, TYPED))


def adjust_spec(spec: Spec, overrides: Mapping[str, Any], way: InputStyle) -> Spec:
    """Return a specification some of whose keys are overridden, validated as a whole.

    Every key may be but those of ``[source]``: a specification is of its source. Another kind of mechanism starts anew.
    """
    present = _drop_absent(overrides)
    wrong = next((name for name in present if list_flags()[name].section == "source"), None)
    if wrong is not None:
        raise UsageError(
            f"{way.spell(list_flags()[wrong])} does not go with {way.file}, which names its source; write it there"
        )
    changes = _collect_changes(spec, present, way)
    to, form, schema = (changes["release"].pop(key, None) for key in ("to", "format", "schema"))
    stated: dict[str, Any] = {"columns": spec.columns, "release": spec.release, "ledger": spec.ledger or Ledger()}
    if "database" in changes["ledger"] and stated["ledger"].off:
        raise UsageError(f"{way.spell(list_flags()['ledger_database'])}: the specification says ledger.off")
    if changes["ledger"].get("off"):
        stated["ledger"] = Ledger()  # without what else is said of one
    if changes["mechanism"].get(KIND, spec.mechanism.kind) == spec.mechanism.kind:
        stated["mechanism"] = spec.mechanism
    parts = {
        section: (_dump_stated(stated[section]) if section in stated else {}) | as_exact_data(new)
        for section, new in changes.items()
        if new
    }
    changed = Spec.model_validate(dict(spec) | parts) if parts else spec
    return redirect_spec(changed, as_path(to) if to else None, form, schema)


def _collect_changes(spec: Spec, present: Mapping[str, Any], way: InputStyle) -> dict[str, dict[str, Any]]:
    """Return the keys that flags give, by section; ``UsageError`` for one that the mechanism does not have."""
    kind = present.get(KIND, spec.mechanism.kind)
    changes: dict[str, dict[str, Any]] = {section: {} for section in ("columns", "release", "mechanism", "ledger")}
    for name, value in present.items():
        flag = list_flags()[name]
        if flag.kinds and kind in PACKAGES and kind not in flag.kinds:
            raise UsageError(f"{way.spell(flag)} is of {', '.join(flag.kinds)}, not of {kind}")
        read = as_path(value) if (flag.section, flag.key) == ("ledger", "database") else way.read(flag, value, kind)
        changes[flag.section][flag.key] = read
    return changes


def _dump_stated(part: BaseModel) -> dict[str, Any]:
    """Return the keys of a section that its publisher wrote, as a specification holds them."""
    return part.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)


def as_plain_spec(source: object, called: str, keywords: Mapping[str, Any], way: InputStyle) -> dict[str, Any]:
    """The plain data of a specification for a source, which messages call ``called``."""
    present = _drop_absent(keywords)
    kind = present.get(KIND, DEFAULT)
    raw: dict[str, Any] = {"columns": {}, "mechanism": {}}
    for name, value in present.items():
        flag = list_flags()[name]
        if flag.section == "mechanism" and kind not in flag.fields and kind in PACKAGES:
            raise UsageError(
                f"{way.spell(flag)} does not go with {_spell_kind(way)} {kind}; it is of {', '.join(flag.fields)}"
            )
        raw.setdefault(flag.section, {})[flag.key] = way.read(flag, value, kind)
    where = {"file": source} if present.get("reader") and isinstance(source, str) else as_source_table(source)
    raw["source"] = {**where, **raw.get("source", {})} if isinstance(where, dict) else where
    _require_table(raw["source"], called, way)
    _require_complete(called, raw, kind, way)
    return raw


def _refuse_missing(source: object, called: str) -> None:
    """``EngineError`` for a file that is not there, or a pattern without a match; an address is looked up later."""
    path = (source.get("file") or source.get("database")) if isinstance(source, dict) else None
    if not isinstance(path, str) or url_scheme(path):
        return
    place = at_home(Path(path))
    if not place.exists() and WILD.search(path):
        find_files([str(place)])
    elif not place.exists():
        raise EngineError(f"{called}: no such file")


def _require_table(source: object, called: str, way: InputStyle) -> None:
    """``UsageError`` with the tables of a database where none is named; ``EngineError`` for a file that is none."""
    if not isinstance(source, dict) or "database" not in source or {"table", "query"} & set(source):
        return
    from privsql.engine.open import list_tables  # noqa: PLC0415 (who reads a specification does not wait for an engine)

    names = ", ".join(list_tables(as_path(source["database"]))) or "no table"
    raise UsageError(f"{called} holds {names}; say which with {way.spell(list_flags()['table'])}, or give a query")


def _drop_absent(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """What was given: no list is empty, and nothing is None."""
    return {name: value for name, value in keywords.items() if not (value is None or (_is_plural(value) and not value))}


def _is_plural(value: object) -> bool:
    return isinstance(value, list | tuple)


def _spell_kind(way: InputStyle) -> str:
    return way.spell(list_flags()[KIND])


def _require_complete(called: str, raw: dict[str, Any], kind: str, way: InputStyle) -> None:
    """``UsageError`` if a flag is missing without which nothing can be published."""
    if kind not in PACKAGES:
        return  # refused as such, later; so are columns of another shape
    stated, columns = (
        set(raw["columns"]) - {"nulls", "bins", "levels", "others", "categorical"},
        NEEDED[type(get_mechanism(kind).shape)],
    )
    needed = [("columns", key) for key in columns if not stated or stated & set(columns)]
    needed += [("mechanism", key) for key, field in get_parameters(kind).model_fields.items() if field.is_required()]
    by_place = {(flag.section, flag.key): flag for flag in list_flags().values()}
    for flag in (by_place[one] for one in needed):
        value = raw[flag.section].get(flag.key)
        if value is None or (isinstance(value, str | list | tuple) and not value):
            _refuse_missing(raw["source"], called)
            raise UsageError(f"{called} is not a specification (.toml), so {way.spell(flag)} is needed")


def _parse_text(text: str, annotation: Any) -> Any:
    """A text, or what TOML makes of it if the key takes more than texts."""
    if all(part in (str, Path, NoneType) or get_origin(part) is Literal for part in _union_members(annotation)):
        return text
    try:
        parsed = tomllib.loads(f"value = {text}", parse_float=Decimal)
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _union_members(annotation: Any) -> list[Any]:
    """The members of a union, or the one type."""
    return list(get_args(annotation)) if get_origin(annotation) in (Union, UnionType) else [annotation]


def _bare_type(annotation: Any) -> Any:
    """``bool``, ``tuple``, ``dict``: the type without what it holds, and without None."""
    part = next((part for part in _union_members(annotation) if part is not NoneType), annotation)
    return get_origin(part) or part


def _describe_values(field: FieldInfo) -> str:
    """The values that a key may have, if they can be listed, and its default."""
    parts = _union_members(field.annotation)
    choices = [str(choice) for part in parts if get_origin(part) is Literal for choice in get_args(part)]
    listed = ", ".join(choices) + "." if choices and choices[0] not in (field.description or "") else ""
    plain = isinstance(field.default, str | int | float | Fraction) and field.default is not False
    return " ".join(filter(None, (listed, f"[default: {field.default}]" if plain else "")))


# Keywords in Python ---------------------------------------------------------------------------------------------------
# What Python's verbs take for a specification: a TOML path, plain data, a ``Spec``, or a source with keywords.
#
# Keywords are called as the flags of the command line are, with underscores, and take values of Python's own.


class ArrowStream(Protocol):
    """A table of any library that speaks Arrow: of pandas, Polars, DuckDB, PyArrow, .."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Its rows."""


SpecLike = PathLike | Mapping[str, Any] | Spec | ArrowStream
SHORT, LONG = "qi", "quasi_identifiers"  # two names of one keyword
MECHANISM = "mechanism"  # a keyword: a kind, an algorithm, or the table of that name


def _plain_value(flag: Flag, value: Any, kind: str) -> Any:  # noqa: ARG001 (a way to read has three)
    return [value] if flag.form == "names" and isinstance(value, str) else value


PYTHON = InputStyle(lambda flag: flag.name, _plain_value, "a specification")


def as_spec(source: SpecLike, keywords: Mapping[str, Any] | None = None, *, verb: str = "a specification") -> Spec:
    """The specification that is meant.

    A TOML path, plain data and a ``Spec`` are whole, but for where the release goes; any other path and a table are a
    source, of which ``keywords`` say the rest. Raises ``UsageError`` for keywords that are unknown, missing or of
    another mechanism.
    """
    flags = _normalize_keywords(keywords or {}, verb)
    if isinstance(source, Spec):
        return adjust_spec(source, flags, PYTHON)
    if isinstance(source, Mapping):
        return adjust_spec(build(source), flags, PYTHON)
    if isinstance(source, str | os.PathLike):
        name = os.fspath(source)
        whole = name.lower().endswith(".toml")
        return (
            adjust_spec(load(name), flags, PYTHON)
            if whole
            else build(as_plain_spec(name, redact_secrets(name), flags, PYTHON))
        )
    return build(as_plain_spec(as_frame(source), "the table", flags, PYTHON), origin="the table")


def split_keywords(keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keywords of a specification, and those of how a verb runs; ``options`` of a CSV file are a table."""
    rest = {name: value for name, value in keywords.items() if name in RUNNING and not isinstance(value, Mapping)}
    return {name: value for name, value in keywords.items() if name not in rest}, rest


def spec_from_manifest(spec_or_source: SpecLike, manifest: Manifest) -> Spec:
    """The specification of a release's source: as given, or of a table alone what the release states of its columns."""
    source: object = os.fspath(spec_or_source) if isinstance(spec_or_source, str | os.PathLike) else spec_or_source
    if isinstance(source, str):
        if source.lower().endswith(".toml"):
            return as_spec(source)
    elif is_table(source):
        source = as_frame(source)
    else:
        return as_spec(spec_or_source)
    params = {**manifest.parameters, "kind": manifest.mechanism, "algorithm": manifest.algorithm}
    columns: dict[str, Any] = {**_stated_columns(manifest), "nulls": manifest.nulls, "bins": manifest.bins}
    if manifest.groups:
        name = next(iter(manifest.groups))
        raise UsageError(
            f"column {name!r} holds groups, and which values they are of the release does not say; give levels"
        )
    if manifest.persons is not None and manifest.persons.rule == "one":
        raise UsageError(
            "the release holds one record of each person, and which column names persons it does not say; give the "
            "specification, with source.person"
        )
    raw = {"columns": columns, "mechanism": params, "release": {"name": manifest.name}}
    spec = build(raw, source=source, origin="the source of the release")
    if spec.source.kind != "csv" or not isinstance(get_mechanism(manifest.mechanism).shape, CategoricalShape):
        return spec
    types = Csv(types={one.name: one.type for one in manifest.sensitive})  # which the domains alone need not tell
    return spec.model_copy(update={"source": spec.source.model_copy(update={"options": types})})


def _stated_columns(manifest: Manifest) -> dict[str, Any]:
    """The roles that a release states."""
    named = [one.name for one in manifest.sensitive]
    if manifest.roles.hold_sets:
        return {"items": named[0]}
    if isinstance(get_mechanism(manifest.mechanism).shape, CategoricalShape):
        return {"categories": named}
    quasi = [one.name for one in manifest.quasi_identifiers]
    return {"quasi_identifiers": quasi, "sensitive": named, "categorical": True}  # as they were published


def _normalize_keywords(keywords: Mapping[str, Any], verb: str) -> dict[str, Any]:
    """The keywords by the names of their flags, without ``mechanism``."""
    flags = {name: value for name, value in keywords.items() if value is not None}
    refuse_unknown_keywords(flags, {*list_flags(), MECHANISM, SHORT}, verb)
    if SHORT in flags:
        if LONG in flags:
            raise UsageError(f"{SHORT} and {LONG} are one keyword; give one of them")
        flags[LONG] = flags.pop(SHORT)
    meant = flags.pop(MECHANISM, None)
    if meant is None:
        return flags
    if isinstance(meant, str):
        meant = {KIND if meant in PACKAGES else "algorithm": meant}
    if not isinstance(meant, Mapping):
        raise UsageError(f"mechanism: {type(meant).__name__} is neither a name nor a table of keys and values")
    names = {flag.key: name for name, flag in list_flags().items() if flag.section == MECHANISM}
    refuse_unknown_keywords(meant, names, "mechanism")
    from_table = {names[key]: value for key, value in meant.items()}
    twice = next((name for name in from_table if name in flags), None)
    if twice is not None:
        raise UsageError(f"{twice} is given twice, once in mechanism")
    return flags | from_table


# Typed keywords -------------------------------------------------------------------------------------------------------
# The keywords of ``publish`` and ``plan``, typed: one for every flag of the command line that makes a specification.
#
# A test compares them with the models that both follow from (``privsql.source.keywords``), where each of them is
# described.

Number = int | float | Decimal | Fraction | str
"""An exact number: a float means the decimal that it prints, a text may be a fraction such as "1/50"."""
Names = str | Sequence[str]
Nulls = Mapping[str, Literal["value", "suppress", "refuse"]]


class Planning(TypedDict, total=False):
    """What makes a specification of a source, and how it runs (``privsql.engine.progress.Running``).

    ``mechanism``: a kind, an algorithm, or the table of that name; ``options``: how the verb runs, or how a CSV file is
    written, ``{"encoding": "latin-1"}``.
    """

    options: Options | Mapping[str, Any] | None
    memory_limit: str | None
    threads: int | None
    progress: bool
    spark: Mapping[str, str]
    reader: Literal["parquet", "csv", "delta", "iceberg"]
    union_by_name: bool
    hive_partitioning: bool
    engine: Literal["duckdb", "spark"]
    table: str
    query: str
    id: str
    id_space: str
    person: str
    persons: Literal["refuse", "one", "count"]
    source_name: str
    quasi_identifiers: Names
    qi: Names
    sensitive: Names
    items: str
    record: str
    item: str
    categories: Names
    nulls: Nulls
    bins: Mapping[str, Number | Mapping[str, Any]]
    levels: Mapping[str, Mapping[str, str]]
    others: Mapping[str, str]
    categorical: bool
    name: str
    to: PathLike
    schema: str
    format: Literal["duckdb", "parquet"]
    order: Literal["stream", "portable"]
    ledger_database: PathLike
    ledger_epsilon: Number
    ledger_off: bool
    mechanism: str | Mapping[str, Any]
    kind: str
    algorithm: str
    threshold: Number | Mapping[str, Any]
    components: Mapping[str, Any]
    groups: Mapping[str, Any]
    min_bucket_size: int
    max_bucket_size: int
    layout: str
    excess: Literal["refuse", "suppress"]
    absence: Literal["observable", "unobservable"]
    fake_values: int
    uneven_fakes: Literal["refuse", "state"]
    exclude_negative: bool
    no_admissible_fake: Literal["refuse", "weaker"]
    allow_certain: bool
    proof_seconds: float
    rho1: Number
    rho2: Number
    delta: Number
    objective: Literal["error", "bound"]
    k: int
    e: Number
    epsilon: Number
    universe: Any
    fan_out: int
    c1: Number
    c2: Number
    tau: Number
    tau_sets: Number
    workload: Sequence[Sequence[str]]
    allow_empty: bool
    domains: Mapping[str, Any]
    pairs: Literal["auto", "all", "chosen"]
    max_cells: int
    choice: Number
    tau_cells: Number


class Publishing(Planning, total=False):
    """The same, and what makes a release of it."""

    key: Key | None
    key_file: PathLike | None
    seed: int | None
    replace: bool
    allow_composition: bool
