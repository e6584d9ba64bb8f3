"""Build a specification from a file or a source, and from options of the command line or keywords of Python."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from privsql.calls import PathLike, as_path, at_home, refuse_unknown_keywords
from privsql.engine.database import FRAME, RUNNING, SPARK, is_spark_session
from privsql.engine.files import WILD, find_files, redact_secrets, url_scheme
from privsql.errors import EngineError, UsageError, suggest_file
from privsql.mechanisms.base import CategoricalShape, ItemSetShape, TableShape
from privsql.mechanisms.registry import KINDS, get_default_mechanism, get_mechanism, get_parameters
from privsql.model.parameters import QUERY_DIGEST
from privsql.source.places import Csv, as_frame, is_table
from privsql.source.spec import (
    Changes,
    Spec,
    as_source_table,
    assign,
    bind_connection,
    build,
    build_changed,
    change_spec,
    find_kinds,
    list_keys,
    read_toml,
)
from privsql.source.targets import MEMORY, open_database

if TYPE_CHECKING:
    from privsql.model.manifest import Manifest

# Settings -------------------------------------------------------------------------------------------------------------
# A key that people often set has a short name, which is an option of the command line and a keyword of Python. Every
# other key is set by its name in a specification: ``--set section.key=value`` at the command line, and
# ``set={"section": {"key": value}}`` in Python.

NAMED = {
    "sensitive": ("columns", "sensitive"),
    "qi": ("columns", "quasi_identifiers"),
    "bins": ("columns", "bins"),
    "mechanism": ("mechanism", "kind"),
    "algorithm": ("mechanism", "algorithm"),
    "threshold": ("mechanism", "threshold"),
    "epsilon": ("mechanism", "epsilon"),
    "delta": ("mechanism", "delta"),
    "k": ("mechanism", "k"),
    "e": ("mechanism", "e"),
    "id": ("source", "id"),
    "person": ("source", "person"),
    "persons": ("source", "persons"),
    "to": ("release", "to"),
    "format": ("release", "format"),
    "ledger": ("ledger", "database"),
}
SETTINGS = (*NAMED, "set")
LISTS = ("sensitive", "qi")  # options whose text is a list of names with commas
NUMBERS = ("threshold", "epsilon", "delta", "k", "e")  # options whose text may be a number or a table
PART = r"""(?:[^\s."'=]+|"[^"]*"|'[^']*')"""  # one part of a dotted key in TOML
SETTING = re.compile(rf"\s*({PART}(?:\.{PART})*)\s*=(.*)", re.DOTALL)


def spec_from_options(source: str, options: Mapping[str, Any]) -> Spec:
    """Return the specification that the arguments of a command ask for.

    Args:
        source: The path of a specification (.toml), or the source itself.
        options: The texts of the command's options by name; "set" has a list of texts. None and empty lists mean that
            an option is not given.
    """
    return _make_spec(source, _collect(pair for name, text in options.items() for pair in _read_option(name, text)))


def _read_option(name: str, given: Any) -> Iterable[tuple[tuple[str, ...], Any]]:
    """Yield what a command's option sets in the specification, as (path, value).

    A path is (section, key, ..).
    """
    if name == "set":
        yield from map(parse_setting, given or ())
    elif name == "bins":
        for column, _, value in (one.partition("=") for one in given or ()):
            if re.fullmatch(r"[^{\['\"]*,[^,=]+=.*", value):
                each = " ".join(f"--bins {one.strip()}" for one in f"{column}={value}".split(","))
                raise UsageError(f"option bins takes one column, and is repeated for others: {each}")
            yield (*NAMED[name], column), parse_toml_value(value)
    elif name in LISTS and given is not None:
        yield NAMED[name], [one.strip() for one in given.split(",") if one.strip()]
    elif given is not None:
        yield NAMED[name], parse_toml_value(given) if name in NUMBERS else given


def parse_setting(text: str) -> tuple[tuple[str, ...], Any]:
    """Return the path and the value of a setting, as ``--set`` takes it.

    >>> parse_setting("mechanism.k=3"), parse_setting("columns.nulls.'zip code'=suppress")
    ((('mechanism', 'k'), 3), (('columns', 'nulls', 'zip code'), 'suppress'))
    """
    match = SETTING.fullmatch(text)
    if match is None:
        shown = redact_secrets(text)
        raise UsageError(f"{shown!r} is not a setting; write section.key=value, with the keys of a specification")
    parts = (one.strip("\"'") for one in re.findall(PART, match[1]))
    return tuple(parts), parse_toml_value(match[2].strip())


def parse_toml_value(text: str) -> Any:
    """Return the value that a text has in TOML; a text that is no TOML value is returned as it is.

    >>> parse_toml_value("0.02"), parse_toml_value("8*f + 0.02"), parse_toml_value("nan")
    (Decimal('0.02'), '8*f + 0.02', 'nan')
    """
    try:
        parsed = tomllib.loads(f"value = {text}", parse_float=Decimal)
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    value = parsed["value"]
    return text if len(parsed) > 1 or (isinstance(value, Decimal) and not value.is_finite()) else value


def nest_settings(texts: Iterable[str]) -> dict[str, Any]:
    """Return settings of the command line as nested dictionaries, as Python's keyword ``set`` takes them.

    >>> nest_settings(["source.table=people", "columns.categorical=true"])
    {'source': {'table': 'people'}, 'columns': {'categorical': True}}
    """
    tables: dict[str, Any] = {}
    for path, value in _collect(map(parse_setting, texts)).items():
        tables = assign(tables, path, value)
    return tables


def suggest_setting(option: str) -> str:
    """Return advice for an unknown option of the command line that has the name of a key of the specification.

    The advice is to set that key with ``--set``. It is empty if no key has that name.

    >>> suggest_setting("--rho1")
    'no such option: --rho1; set this key with --set mechanism.rho1=..'
    """
    name = option.lstrip("-").replace("-", "_")
    found = next((f"{section}.{name}" for section, keys in list_keys().items() if name in keys), None)
    return f"no such option: {option}; set this key with --set {found}=.." if found else ""


def _collect(pairs: Iterable[tuple[tuple[str, ...], Any]]) -> Changes:
    """Collect pairs (path in a specification, new value) in a dictionary.

    Raises:
        UsageError: A key is set twice.
    """
    changes: dict[tuple[str, ...], Any] = {}
    for path, value in pairs:
        if path in changes:
            raise UsageError(f"{'.'.join(path)} is given twice")
        changes[path] = value
    return changes


# Keywords in Python ---------------------------------------------------------------------------------------------------
# Convert the ``spec`` or ``source`` argument of Python's verbs, and their keywords, to a ``Spec``.


class ArrowStream(Protocol):
    """A table of pandas, Polars, DuckDB, PyArrow or any other library that offers Arrow streams."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the rows as a stream."""


SpecLike = PathLike | Mapping[str, Any] | Spec | ArrowStream
NEEDED = {TableShape: ("sensitive", "quasi_identifiers"), ItemSetShape: ("items",), CategoricalShape: ("categories",)}
ROLES = {"items", "record", "item", "categories", "sensitive", "quasi_identifiers"}


def split_keywords(keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split keywords into those for keys of a specification, and those that say how a command runs, such as threads."""
    rest = {name: value for name, value in keywords.items() if name in RUNNING}
    return {name: value for name, value in keywords.items() if name not in rest}, rest


def as_spec(
    source: SpecLike | None,
    keywords: Mapping[str, Any] | None = None,
    *,
    verb: str = "a specification",
    connection: object | None = None,
) -> Spec:
    """Return the specification that a caller of Python gives as a whole, or as a source with keywords.

    The path of a TOML file, plain data and a ``Spec`` are complete specifications, in which ``keywords`` change keys. A
    table or any other path is a source, and ``keywords`` give the rest.

    Args:
        source: The specification or the source; None for a table or query of the open ``connection``.
        keywords: The keywords that were given; None for none.
        verb: The name of the public function that the user called, for messages.
        connection: An open connection to DuckDB, or a session of Spark.

    Raises:
        UsageError: A keyword is unknown, missing, or belongs to another mechanism.
    """
    given = keywords or {}
    refuse_unknown_keywords([name for name in given if given[name] is not None], SETTINGS, verb)
    return _make_spec(source, read_keywords(given), verb, connection)


def read_keywords(given: Mapping[str, Any]) -> Changes:
    """Return the values that a caller's keywords set, by path in the specification; None sets nothing."""
    return _collect(pair for name, value in given.items() if value is not None for pair in _read_keyword(name, value))


def _read_keyword(name: str, value: Any) -> Iterable[tuple[tuple[str, ...], Any]]:
    """Yield what a keyword of Python sets in the specification, as (path, value).

    A path is (section, key, ..).
    """
    if name == "set" and not isinstance(value, Mapping):
        raise UsageError(f"set: {type(value).__name__} is not a table of sections, such as {{'release': {{..}}}}")
    if name == "set":
        for section, keys in value.items():
            if isinstance(keys, Mapping):
                yield from (((str(section), str(key)), one) for key, one in keys.items() if one is not None)
            else:
                yield (str(section),), keys
    elif name == "bins" and isinstance(value, Mapping):
        yield from (((*NAMED[name], column), one) for column, one in value.items())
    else:
        yield NAMED[name], value


def _make_spec(
    source: SpecLike | None, changes: Changes, verb: str = "a specification", connection: object | None = None
) -> Spec:
    """Return the specification for a source, a file or plain data, with changes applied.

    Args:
        source: The specification or the source; None for a table or query of the ``connection``.
        changes: New values by path.
        verb: The name of the public function that the user called, for messages.
        connection: An open connection; None for none.
    """
    if source is None:
        spec = _spec_of_connection(changes, verb, connection)
    elif isinstance(source, Spec):
        spec = change_spec(source, changes)
    elif isinstance(source, Mapping):
        spec = build_changed(source, changes)
    elif not isinstance(source, str | os.PathLike):
        frame = source if is_table(source) else as_frame(source)
        spec = _spec_of_source({FRAME: frame}, "the table", changes)
    elif (name := os.fspath(source)).lower().endswith(".toml"):
        spec = build_changed(read_toml(as_path(name)), changes, base=as_path(name).parent, origin=name)
    else:
        called = redact_secrets(name)
        where = {"file": name} if ("source", "reader") in changes else as_source_table(name)
        _refuse_missing(name, called)
        spec = _spec_of_source(where, called, changes)
    return bind_connection(spec, connection)


def _spec_of_connection(changes: Changes, verb: str, connection: object | None) -> Spec:
    """Return the specification for a source in an open connection, with all keys from ``changes``.

    Args:
        changes: New values by path; among them is the table or query of the source.
        verb: The name of the public function that the user called, for messages.
        connection: The connection.
    """
    there = {path[1]: value for path, value in changes.items() if path in (("source", "table"), ("source", "query"))}
    if connection is None or not there:
        raise UsageError(
            f"{verb} needs a source: a specification, a file, a table, or source.table or source.query of a connection"
        )
    if is_spark_session(connection):
        rest = {path: value for path, value in changes.items() if path[:1] != ("source",) or path[1] not in there}
        return _spec_of_source({SPARK: there}, "the session", rest)
    opened = open_database(connection)
    source = {"database": os.fspath(opened.file) if opened and opened.file else MEMORY}
    spec = _spec_of_source(source, "the connection", changes)
    return spec.model_copy(update={"source": spec.source.with_open_database(opened)})


def _spec_of_source(source: Mapping[str, Any], called: str, changes: Changes) -> Spec:
    """Return the specification that has this source, and the other keys of ``changes``.

    Args:
        source: The section ``[source]``.
        called: What messages call the source.
        changes: The values of other keys, by path.
    """
    if "database" in source and not {("source", "table"), ("source", "query")} & set(changes):
        from privsql.engine.open import list_tables

        names = ", ".join(list_tables(as_path(source["database"]))) or "no table"
        raise UsageError(f"{called} holds {names}; choose one as source.table, or give a source.query")
    missing = _find_missing(changes)
    if missing is not None:
        hint = "" if FRAME in source else f"; 'privsql init {called}' proposes a specification"
        options = {".".join(path): name for name, path in NAMED.items()}
        option = f" (option {options[missing]})" if missing in options else ""
        raise UsageError(f"{called} is not a specification (.toml), so {missing} is needed{option}{hint}")
    return build_changed({"source": source, "columns": {}, "mechanism": {}}, changes, origin="")


def _find_missing(changes: Changes) -> str | None:
    """Return the first required key of a specification that ``changes`` does not set.

    The result is None if nothing is missing, or if the mechanism is unknown.
    """
    mechanism = {path[1]: value for path, value in changes.items() if len(path) == 2 and path[0] == "mechanism"}
    kind, *others = find_kinds(mechanism)
    if kind not in KINDS or others:
        return None  # an unknown mechanism is refused later
    stated = {path[:2] for path, value in changes.items() if value or not isinstance(value, str | list | tuple)}
    shape = get_default_mechanism(kind).shape
    columns = next(keys for one, keys in NEEDED.items() if isinstance(shape, one))
    roles = {path[1] for path in stated if path[0] == "columns"} & ROLES
    # The other keys are for tables of another shape.
    needed = [f"columns.{key}" for key in columns if not roles or roles & set(columns)]
    needed += [f"mechanism.{key}" for key, field in get_parameters(kind).model_fields.items() if field.is_required()]
    return next((key for key in needed if tuple(key.split(".")) not in stated), None)


def _refuse_missing(name: str, called: str) -> None:
    """Raise ``EngineError`` if a file does not exist, or if a pattern matches no file; addresses are not checked.

    Args:
        name: The file or pattern.
        called: What messages call it.
    """
    place = at_home(Path(name))
    if url_scheme(name) or place.exists():
        return
    if WILD.search(name):
        find_files([str(place)])
    else:
        raise EngineError(f"{called}: no such file{suggest_file(place)}")


def spec_from_manifest(spec_or_source: SpecLike, manifest: Manifest, connection: object | None = None) -> Spec:
    """Return the specification for the source of a release.

    If only a table or a file is given, its columns get the roles that the release states.

    Args:
        spec_or_source: The specification or the source.
        manifest: The manifest of the release.
        connection: An open connection, which may have the source's database open; None for none.
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
    types = Csv(types={one.name: one.type for one in manifest.sensitive})  # domains need not tell the types
    return spec.model_copy(update={"source": spec.source.model_copy(update={"options": types})})


def _stated_columns(manifest: Manifest) -> dict[str, Any]:
    """Return the section ``[columns]`` of a specification, with the roles that the manifest states."""
    named = [one.name for one in manifest.sensitive]
    if manifest.roles.hold_sets:
        return {"items": named[0]}
    if isinstance(get_mechanism(manifest.mechanism, manifest.algorithm).shape, CategoricalShape):
        return {"categories": named}
    quasi = [one.name for one in manifest.quasi_identifiers]
    return {"quasi_identifiers": quasi, "sensitive": named, "categorical": True}  # numbers were published as categories
