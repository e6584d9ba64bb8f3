"""Build specifications from the command line's flags and from keywords of Python's functions."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Union, get_args, get_origin

from privsql.calls import PathLike, as_exact_data, as_path, at_home, refuse_unknown_keywords
from privsql.engine.database import FRAME, RUNNING, SERVERS, SPARK, is_spark_session
from privsql.engine.files import WILD, find_files, redact_secrets, url_scheme
from privsql.errors import EngineError, UsageError, name_choices, suggest_file
from privsql.mechanisms.base import CategoricalShape, ItemSetShape, TableShape
from privsql.mechanisms.registry import DEFAULT, KINDS, get_default_mechanism, get_mechanism, get_parameters
from privsql.model.parameters import QUERY_DIGEST
from privsql.source.places import Csv, as_frame, is_table
from privsql.source.spec import SECTIONS, Ledger, Spec, as_source_table, bind_connection, build, load
from privsql.source.targets import MEMORY, Address, open_database, require_file_name

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

    from privsql.model.manifest import Manifest

# Flags ----------------------------------------------------------------------------------------------------------------
# Every key of a specification's models is a flag of the command line and a keyword of Python.
#
# A flag has the name of its key; flags of ``[ledger]`` begin with ``ledger``. The value of a flag is text, unless the
# key takes a number or a table: such a value is read as TOML (``0.02`` exactly, ``{ default = 0.1, HIV = 0.05 }``).

BY_ARGUMENT = {("source", key) for key in ("database", "file", *SERVERS, FRAME)}  # no flags
SPELLED = {"quasi_identifiers": "--qi"}  # others: as the key is
TAKEN = (
    "source", "seed", "key_file", "replace", "repeat", "nobody_has_it", "allow_composition", "verbose", "memory_limit",
    "threads", "json", "help",
)  # fmt: skip
KIND, ALGORITHM = "kind", "algorithm"
NEEDED = {TableShape: ("sensitive", "quasi_identifiers"), ItemSetShape: ("items",), CategoricalShape: ("categories",)}


@dataclass(frozen=True)
class Flag:
    """A key of a specification as a flag and as a keyword, whose name is ``name``."""

    section: str
    key: str
    name: str
    fields: dict[str, FieldInfo]  # by kind; of the other sections: by the section

    @property
    def spelling(self) -> str:
        """Return how the command line spells it."""
        return SPELLED.get(self.name, "--" + self.name.replace("_", "-"))

    @property
    def form(self) -> Literal["switch", "names", "pairs", "one"]:
        """Return how its value is written: not at all, as names with commas, as NAME=VALUE (repeatable), or as one."""
        annotation = next((one for one in _union_members(self._first_field.annotation) if one is not NoneType), None)
        if annotation == tuple[str, ...]:
            return "names"
        return "switch" if annotation is bool else "pairs" if get_origin(annotation) is dict else "one"

    @property
    def help(self) -> str:
        """Return the description, the possible values and the default, by mechanism where these differ."""
        if self.key == KIND:
            return f"The mechanism: {', '.join(self.fields)}. [default: {DEFAULT}]"
        kinds: dict[str, list[str]] = {}
        for kind, field in self.fields.items():
            kinds.setdefault(_describe_field(field), []).append(kind)
        if len(kinds) == 1:
            return next(iter(kinds))
        parts = (f"{', '.join(of)}: {text[0].lower()}{text[1:].removesuffix('.')}" for text, of in kinds.items())
        return "; ".join(parts)

    @property
    def _first_field(self) -> FieldInfo:
        return next(iter(self.fields.values()))

    def parse_value(self, raw: Any) -> Any:
        """Return the keyword's value for what stands on a command line."""
        annotation = self._first_field.annotation
        if self.form == "names":
            return [name.strip() for name in raw.split(",") if name.strip()]
        if self.form == "pairs":
            pairs = (one.partition("=") for one in raw)
            return {name: _parse_text(value, get_args(annotation)[1]) for name, _, value in pairs}
        return raw if self.form == "switch" else _parse_text(raw, annotation)


def list_flags() -> dict[str, Flag]:
    """Return all flags by name, section by section. The section stands before a name that is taken."""
    return _collect_flags(tuple(KINDS))


@cache
def _collect_flags(kinds: tuple[str, ...]) -> dict[str, Flag]:
    keys: dict[tuple[str, str], dict[str, FieldInfo]] = {
        (section, field.alias or key): {section: field}
        for section, model in SECTIONS.items()
        for key, field in model.model_fields.items()
        if (section, key) not in BY_ARGUMENT
    }
    for kind in kinds:
        for key, field in get_parameters(kind).model_fields.items():
            keys.setdefault((MECHANISM, key), {})[kind] = field
    flags: dict[str, Flag] = {}
    for (section, key), fields in keys.items():
        prefixed = section == "ledger" or key in (*flags, *TAKEN)
        name = f"{section}_{key}" if prefixed else key
        flags[name] = Flag(section, key, name, fields)
    return flags


def list_keywords() -> set[str]:
    """Return the keywords of Python that make a specification."""
    return {*list_flags(), MECHANISM, SHORT}


def spec_from_flags(source: Path | str, flags: Mapping[str, Any]) -> Spec:
    """Return the specification in a TOML file with what flags override, or that of another source by flags alone.

    Raises ``UsageError`` as ``as_spec`` does; ``spell_as_flags`` turns its message into words of the command line.
    """
    present = {name: value for name, value in flags.items() if value not in (None, [], ())}
    return as_spec(source, {name: list_flags()[name].parse_value(value) for name, value in present.items()})


KEY = re.compile(r"\b(source|columns|release|mechanism|ledger)(?:: (?=bins|levels|others))?\.?([a-z_0-9]+)(\.[\w.]+)?")
SETTINGS = (  # values in TOML beside a flag
    (re.compile(r"\bkind = '(\w+)'"), r"--kind \1"),
    (re.compile(r"\bcategorical = true"), "--categorical"),
    (re.compile(r"--quasi-identifiers\b"), "--qi"),
    (re.compile(r"\bset nulls\.(\w+) to '(\w+)'"), r"give --nulls \1=\2"),
    (re.compile(r"(--[\w-]+) = '([^']*)'"), r"\1 \2"),
)


def spell_as_flags(message: str) -> str:
    """Return a message about a specification in words of the command line.

    >>> spell_as_flags("specification: mechanism.kind: 'x' is not one; choose source.persons = 'one'")
    "--kind: 'x' is not one; choose --persons one"
    """
    flags = {(flag.section, flag.key): flag.spelling for flag in list_flags().values()}

    def spell(match: re.Match[str]) -> str:
        flag = flags.get((match[1], match[2]))
        return match[0] if flag is None else flag

    text = KEY.sub(spell, message.removeprefix("specification: "))
    for pattern, spelled in SETTINGS:
        text = pattern.sub(spelled, text)
    return text


def adjust_spec(spec: Spec, overrides: Mapping[str, Any]) -> Spec:
    """Return a specification with other values for some keys, validated as a whole.

    Keys of ``[source]`` can't be overridden. Another kind of mechanism starts without parameters.
    """
    changes = _sort_by_section(overrides, overrides.get(KIND, spec.mechanism.kind))
    if "source" in changes:
        wrong = next(name for name in overrides if list_flags()[name].section == "source")
        raise UsageError(f"{wrong}=.. can't be combined with a specification, which names its source; set it there")
    stated: dict[str, Any] = {"columns": spec.columns, "release": spec.release, "ledger": spec.ledger or Ledger()}
    ledger, release = changes.get("ledger", {}), changes.get("release", {})
    if "database" in ledger:
        if stated["ledger"].off:
            raise UsageError("ledger_database=..: the specification says ledger.off")
        ledger["database"] = as_path(ledger["database"])
    if ledger.get("off"):
        stated["ledger"] = Ledger()
    if changes.get(MECHANISM, {}).get(KIND, spec.mechanism.kind) == spec.mechanism.kind:
        stated[MECHANISM] = spec.mechanism
    if to := release.pop("to", None):
        place = require_file_name(to)
        release["to"] = place if isinstance(place, Address) else as_path(place)
    elif release.get("format", spec.format) != spec.format and isinstance(spec.release.to, Path):
        release["to"] = spec.release.to.with_suffix("" if release["format"] == "parquet" else ".duckdb")
    parts = {
        section: (_dump_stated(stated[section]) if section in stated else {}) | as_exact_data(new)
        for section, new in changes.items()
    }
    if not parts:
        return spec
    changed = Spec.model_validate(dict(spec) | parts)
    return changed.model_copy(update={"release": spec.release.model_copy(update=dict(changed.release))})


def _sort_by_section(keywords: Mapping[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    """Return keywords as keys by section; ``UsageError`` for one that a kind of mechanism does not have."""
    sections: dict[str, dict[str, Any]] = {}
    for name, value in keywords.items():
        flag = list_flags()[name]
        if flag.section == MECHANISM and kind not in flag.fields and kind in KINDS:
            wanted = name_choices(flag.fields)
            raise UsageError(f"{name}=.. can't be combined with kind = {kind!r}; it needs {wanted}")
        single = flag.form == "names" and isinstance(value, str)
        sections.setdefault(flag.section, {})[flag.key] = [value] if single else value
    return sections


def _dump_stated(part: BaseModel) -> dict[str, Any]:
    """Return the keys of a section that its publisher wrote, as a specification holds them."""
    stated = part.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    to = getattr(part, "to", None)
    return stated | ({"to": to} if isinstance(to, Address) else {})  # with its password


def _spec_of_source(source: object, called: str, keywords: Mapping[str, Any]) -> Spec:
    """Return the specification of a source, which messages call ``called``, by keywords alone."""
    kind = keywords.get(KIND) or _imply_kind(keywords.get(ALGORITHM))
    sections: dict[str, dict[str, Any]] = {"columns": {}, MECHANISM: {}, **_sort_by_section(keywords, kind)}
    if kind != DEFAULT:
        sections[MECHANISM][KIND] = kind
    where = {"file": source} if keywords.get("reader") and isinstance(source, str) else as_source_table(source)
    sections["source"] = where | sections.get("source", {})
    _require_table(sections["source"], called)
    _require_complete(called, sections, kind)
    return build(sections, origin="specification" if isinstance(source, str) else called)


def _imply_kind(algorithm: object) -> str:
    """Return the mechanism that alone has an algorithm; ``UsageError`` if several others than the default have it."""
    fields = list_flags()[ALGORITHM].fields
    having = [kind for kind, field in fields.items() if algorithm in _list_choices(field)]
    if len(having) > 1 and DEFAULT not in having:
        raise UsageError(f"{algorithm} is an algorithm of {' and '.join(having)}; choose one with kind=..")
    return having[0] if len(having) == 1 else DEFAULT


def _refuse_missing(source: Mapping[str, Any], called: str) -> None:
    """Raise ``EngineError`` for a missing file, or a pattern without a match; an address is looked up later."""
    path = source.get("file") or source.get("database")
    if not isinstance(path, str) or url_scheme(path):
        return
    place = at_home(Path(path))
    if not place.exists() and WILD.search(path):
        find_files([str(place)])
    elif not place.exists():
        raise EngineError(f"{called}: no such file{suggest_file(place)}")


def _require_table(source: Mapping[str, Any], called: str) -> None:
    """Raise ``UsageError`` with the tables of a database if none is named; ``EngineError`` if it is none."""
    if "database" not in source or {"table", "query"} & set(source):
        return
    from privsql.engine.open import list_tables

    names = ", ".join(list_tables(as_path(source["database"]))) or "no table"
    raise UsageError(f"{called} holds {names}; choose one with table=.., or give a query")


def _require_complete(called: str, sections: Mapping[str, Mapping[str, Any]], kind: str) -> None:
    """Raise ``UsageError`` if a keyword is missing without which nothing can be published."""
    if kind not in KINDS:
        return  # refused as such, later; so are columns of another shape
    stated = set(sections["columns"]) - {"nulls", "bins", "levels", "others", "categorical"}
    shape = get_default_mechanism(kind).shape
    columns = next(keys for one, keys in NEEDED.items() if isinstance(shape, one))
    needed = [("columns", key) for key in columns if not stated or stated & set(columns)]
    needed += [(MECHANISM, key) for key, field in get_parameters(kind).model_fields.items() if field.is_required()]
    by_place = {(flag.section, flag.key): flag for flag in list_flags().values()}
    for flag in (by_place[one] for one in needed):
        value = sections[flag.section].get(flag.key)
        if value is None or (isinstance(value, str | list | tuple) and not value):
            _refuse_missing(sections["source"], called)
            hint = "" if FRAME in sections["source"] else f"; 'privsql init {called}' proposes a specification"
            raise UsageError(f"{called} is not a specification (.toml), so {flag.name}=.. is needed{hint}")


def _parse_text(text: str, annotation: Any) -> Any:
    """Return a text, or its value in TOML if the key takes more than texts."""
    plain = all(part in (str, Path, NoneType) or get_origin(part) is Literal for part in _union_members(annotation))
    return text if plain else parse_toml_value(text)


def parse_toml_value(text: str) -> Any:
    """Return the value that a text has in TOML, or the text where it is no value."""
    try:
        parsed = tomllib.loads(f"value = {text}", parse_float=Decimal)
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _union_members(annotation: Any) -> list[Any]:
    """Return the members of a union, or the one type."""
    return list(get_args(annotation)) if get_origin(annotation) in (Union, UnionType) else [annotation]


def _list_choices(field: FieldInfo) -> list[str]:
    """Return the texts that a key may be."""
    parts = _union_members(field.annotation)
    return [str(choice) for part in parts if get_origin(part) is Literal for choice in get_args(part)]


def _describe_field(field: FieldInfo) -> str:
    """Return what a key means, the values that it may have, if they can be listed, and its default."""
    text, _, default = (field.description or "").removesuffix("]").partition("[default: ")
    choices = _list_choices(field)
    listed = ", ".join(choices) + "." if choices and choices[0] not in text else ""
    listed = f"One of {listed}" if len(choices) > 1 and listed else listed
    if not default and isinstance(field.default, str | int | float | Fraction) and field.default is not False:
        default = str(field.default)
    return " ".join(filter(None, (text.strip(), listed, default and f"[default: {default}]")))


# Keywords in Python ---------------------------------------------------------------------------------------------------
# Convert the ``spec`` or ``source`` argument of Python's verbs, and keywords with the names of flags, to a ``Spec``.


class ArrowStream(Protocol):
    """A table of pandas, Polars, DuckDB, PyArrow or any other library with Arrow streams."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the rows as a stream."""


SpecLike = PathLike | Mapping[str, Any] | Spec | ArrowStream
SHORT, LONG = "qi", "quasi_identifiers"  # two names of one keyword
MECHANISM = "mechanism"  # a section, and a keyword: a kind, an algorithm, or the table of that name


def as_spec(
    source: SpecLike | None,
    keywords: Mapping[str, Any] | None = None,
    *,
    verb: str = "a specification",
    connection: object | None = None,
) -> Spec:
    """Return the specification that a caller of Python hands over.

    A TOML path, plain data and a ``Spec`` are whole, and ``keywords`` override their keys. Any other path and a table
    are a source, and ``keywords`` say the rest; without a source it is a table or a query of the open ``connection``.
    Raises ``UsageError`` for keywords that are unknown, missing or of another mechanism.
    """
    known = _normalize_keywords(keywords or {}, verb)
    if source is None:
        spec = _spec_of_connection(known, verb, connection)
    elif isinstance(source, Spec | Mapping):
        spec = adjust_spec(source if isinstance(source, Spec) else build(source), known)
    elif not isinstance(source, str | os.PathLike):
        spec = _spec_of_source(source if is_table(source) else as_frame(source), "the table", known)
    elif (name := os.fspath(source)).lower().endswith(".toml"):
        spec = adjust_spec(load(name), known)
    else:
        spec = _spec_of_source(name, redact_secrets(name), known)
    return bind_connection(spec, connection)


def _spec_of_connection(flags: dict[str, Any], verb: str, connection: object | None) -> Spec:
    """Return the specification of a table or query of an open connection."""
    if connection is None or not {"table", "query"} & set(flags):
        raise UsageError(f"{verb} needs a source: a specification, a file, a table, or table or query of a connection")
    if is_spark_session(connection):
        there = {name: flags.pop(name) for name in ("table", "query") if name in flags}
        return _spec_of_source({SPARK: there}, "the session", flags)
    opened = open_database(connection)
    source = {"database": os.fspath(opened.file) if opened and opened.file else MEMORY}
    spec = _spec_of_source(source, "the connection", flags)
    return spec.model_copy(update={"source": spec.source.with_open_database(opened)})


def split_keywords(keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the keywords of a specification, and those of how a verb runs; ``options`` of a CSV file are a table."""
    rest = {name: value for name, value in keywords.items() if name in RUNNING and not isinstance(value, Mapping)}
    return {name: value for name, value in keywords.items() if name not in rest}, rest


def spec_from_manifest(spec_or_source: SpecLike, manifest: Manifest, connection: object | None = None) -> Spec:
    """Return the specification of a release's source; a table alone has the roles that the release states.

    ``connection``: open in this process; may have the database of the source open.
    """
    spec = _spec_from_manifest(spec_or_source, manifest)
    if connection is not None and spec.source.database is not None:
        opened = open_database(connection, spec.source.database)
        spec = spec.model_copy(update={"source": spec.source.with_open_database(opened or spec.source.opened)})
    return spec


def _spec_from_manifest(spec_or_source: SpecLike, manifest: Manifest) -> Spec:
    source: object = os.fspath(spec_or_source) if isinstance(spec_or_source, str | os.PathLike) else spec_or_source
    if isinstance(source, str):
        if source.lower().endswith(".toml"):
            return as_spec(source)
    elif not is_table(source):
        return as_spec(spec_or_source)
    params = {**manifest.parameters, "kind": manifest.mechanism, "algorithm": manifest.algorithm}
    columns: dict[str, Any] = {**_stated_columns(manifest), "nulls": manifest.nulls, "bins": manifest.bins}
    if manifest.groups:
        name = next(iter(manifest.groups))
        raise UsageError(f"column {name!r} holds groups, and the release does not list their values; give levels")
    if QUERY_DIGEST.search(json.dumps(manifest.parameters)):
        raise UsageError("the release states the digests of queries, not the queries; give the specification")
    if manifest.persons is not None and manifest.persons.taken is not None:
        held = "one record" if manifest.persons.taken == 1 else "some records"
        raise UsageError(
            f"the release holds {held} of each person and does not name the column of persons; give the "
            "specification, with source.person"
        )
    raw = {"columns": columns, "mechanism": params, "release": {"name": manifest.name}}
    spec = build(raw, source=source, origin="the source of the release")
    if spec.source.kind != "csv" or not isinstance(
        get_mechanism(manifest.mechanism, manifest.algorithm).shape, CategoricalShape
    ):
        return spec
    types = Csv(types={one.name: one.type for one in manifest.sensitive})  # which the domains alone need not tell
    return spec.model_copy(update={"source": spec.source.model_copy(update={"options": types})})


def _stated_columns(manifest: Manifest) -> dict[str, Any]:
    """Return the roles of columns that a release states."""
    named = [one.name for one in manifest.sensitive]
    if manifest.roles.hold_sets:
        return {"items": named[0]}
    if isinstance(get_mechanism(manifest.mechanism, manifest.algorithm).shape, CategoricalShape):
        return {"categories": named}
    quasi = [one.name for one in manifest.quasi_identifiers]
    return {"quasi_identifiers": quasi, "sensitive": named, "categorical": True}  # as they were published


def _normalize_keywords(keywords: Mapping[str, Any], verb: str) -> dict[str, Any]:
    """Return the keywords by the names of their flags, without ``mechanism``."""
    flags = {name: value for name, value in keywords.items() if value is not None}
    refuse_unknown_keywords(flags, list_keywords(), verb)
    if SHORT in flags:
        if LONG in flags:
            raise UsageError(f"{SHORT} and {LONG} mean the same; give only one")
        flags[LONG] = flags.pop(SHORT)
    meant = flags.pop(MECHANISM, None)
    if meant is None:
        return flags
    if isinstance(meant, str):
        meant = {KIND if meant in KINDS else ALGORITHM: meant}
    if not isinstance(meant, Mapping):
        raise UsageError(f"mechanism: {type(meant).__name__} is neither a name nor a table of keys")
    names = {flag.key: name for name, flag in list_flags().items() if flag.section == MECHANISM}
    refuse_unknown_keywords(meant, names, "mechanism")
    from_table = {names[key]: value for key, value in meant.items()}
    twice = next((name for name in from_table if name in flags), None)
    if twice is not None:
        raise UsageError(f"{twice} is given twice: here and in mechanism")
    return flags | from_table
