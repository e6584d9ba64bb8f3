"""``init`` looks at a source and proposes a specification that can be published."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import urlsplit

import tomlkit
from pydantic import ValidationError
from sqlglot import exp

from privsql.calls import PathLike, as_optional_path
from privsql.engine.database import HERE, TRAITS, Options, RunKeywords, Warehouse, options_from
from privsql.engine.files import fold_name, is_files, url_scheme
from privsql.engine.open import list_tables
from privsql.engine.sqlfiles import DIALECT, alias_as, column, quoted_identifier, temp_table
from privsql.errors import UsageError, suggest_name
from privsql.mechanisms.base import BudgetComposition, ProfiledSource, Proposal, TableShape
from privsql.mechanisms.registry import get_default_mechanism
from privsql.source.keywords import read_keywords
from privsql.source.places import Source, as_frame, is_table
from privsql.source.population import name_population
from privsql.source.profile import ChosenRoles, choose_roles, find_missing_markers, is_identifying_name
from privsql.source.records import prepare_table
from privsql.source.spec import Columns
from privsql.source.spec import schema as specification_schema
from privsql.source.table import mount_persons
from privsql.verbs.sessions import open_session

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tomlkit.items import Table

    from privsql.source.keywords import ArrowStream


INIT_KEYS = (
    "source.table", "source.query", "source.engine", "columns.sensitive", "columns.categorical", "mechanism.kind",
)  # fmt: skip


def init(
    source: PathLike | ArrowStream | None = None,
    *,
    sensitive: str | None = None,
    mechanism: str | None = None,
    set: Mapping[str, Any] | None = None,  # noqa: A002
    base: PathLike | None = None,
    schema: bool = False,
    **how: Unpack[RunKeywords],
) -> str:
    """TOML of a proposed specification for a source: roles, domain sizes and feasible parameters.

    Args:
        source: A file, an address of Postgres, or a table in Python. The text can't name a table;
            ``privsql.load(path, source=table)`` reads the text once it is saved.
        sensitive: The sensitive column, if its name does not show it.
        mechanism: The kind of mechanism; by default the one that suits the sensitive column.
        set: Keys of a specification that say how to read the source. source.table may list several tables, which are
            joined by the names of records or persons that they share. ``INIT_KEYS`` are all of them.
        base: The folder where the specification will lie, from which its paths are taken; else they are absolute.
        schema: Return the JSON Schema of specifications, for editors; no source is read.
        how: How the verb runs.

    Raises:
        UsageError: No columns can have the roles that the mechanism needs, or the sensitive values are no categories.
        EngineError: A file can't be read.
        InfeasibleError: Nothing can be published.
    """
    if schema == (source is not None):
        raise UsageError("init takes a source, or option schema without one")
    if schema or source is None:
        return specification_schema()
    keywords = {"sensitive": sensitive, "mechanism": mechanism, "set": set}
    given = {".".join(path): value for path, value in read_keywords(keywords).items()}
    if (wrong := next((key for key in given if key not in INIT_KEYS), None)) is not None:
        raise UsageError(f"init takes {', '.join(INIT_KEYS)}, not {wrong}{suggest_name(wrong, INIT_KEYS)}")
    table, query, engine, sensitive, categorical, kind = map(given.get, INIT_KEYS)
    tables = (table,) if isinstance(table, str) else tuple(table or ())
    wanted = (kind, (sensitive, bool(categorical)))
    if kind is not None:
        get_default_mechanism(kind)
    if query is not None and tables:
        raise UsageError("give source.table or source.query, not both")
    with options_from(how, init) as options:
        if is_table(source):
            return _propose_spec("the table", {"frame": as_frame(source)}, {"query": query}, wanted, options)
        if not isinstance(source, str | os.PathLike):
            raise UsageError(f"{type(source).__name__} is neither a path nor a table")
        name = os.fspath(source)
        holder = next((one for one, traits in TRAITS.items() if url_scheme(name) in traits.schemes), None)
        if holder is not None:
            relation = tomlkit.inline_table()
            relation.update(_describe_relation(name, tables, query))
            held = {holder: relation}
            return _propose_spec("the table", {holder: relation.unwrap()}, {}, wanted, options, held)
        if engine not in (None, HERE):
            path = _as_spec_path(name, as_optional_path(base, "base"))
            place, written = {"file": name, "engine": engine}, {"file": path, "engine": engine}
        elif not tables and is_files(name):
            place, written = {"file": name}, {"file": _as_spec_path(name, as_optional_path(base, "base"))}
        else:
            if query is None:
                tables = tables or (_only_table(Path(name)),)
                query = _join_tables(name, tables, options) if len(tables) > 1 else None
            place, written = {"database": name}, {"database": _as_spec_path(name, as_optional_path(base, "base"))}
        how_read = {"query": query} if query is not None or not tables else {"table": tables[0]}
        return _propose_spec(name, place, how_read, wanted, options, written)


def _describe_relation(address: str, tables: Sequence[str], query: str | None) -> dict[str, Any]:
    """Return the section of a server's table or query; ``UsageError`` for a password, which would be written down."""
    if len(tables) + (query is not None) != 1:
        raise UsageError("a server needs one source.table, or a source.query in the server's SQL")
    if urlsplit(address).password is not None or "password" in (urlsplit(address).query or ""):
        raise UsageError("the address holds a password; leave it out, and set PGPASSWORD or use ~/.pgpass")
    return {"uri": address, **({"query": query} if query is not None else {"table": tables[0]})}


LEARNERS = (
    "If an attacker may train a model on the release, or know other records' values, consider algorithm = 'tables'",
    "(see 'Choosing a mechanism'). It needs a public list of values, which init does not read from the records.",
)


def _propose_spec(
    called: str,
    place: dict[str, Any],
    how_read: dict[str, Any],
    wanted: tuple[str | None, tuple[str | None, bool]],
    options: Options,
    written: dict[str, Any] | None = None,
) -> str:
    """Return the text; ``written``: how the specification names the place, if it can."""
    how_read = {key: value for key, value in how_read.items() if value is not None}

    def choose(db: Warehouse) -> ChosenRoles:
        try:
            return choose_roles(db, temp_table("source"), *wanted, options.report)
        except UsageError as error:
            raise UsageError(f"{called}: {error}") from error

    with open_session(options) as db:
        mount_persons(db, source := _make_source(place | how_read))
        elsewhere = source.external_relation is not None
        marked = {} if elsewhere else find_missing_markers(db, temp_table("source"))
        chosen = None if marked else choose(db)
    if chosen is None:
        how_read = _read_as_null(source, how_read, marked)
        with open_session(options) as db:
            mount_persons(db, source := _make_source(place | how_read))
            chosen = choose(db)
    mechanism = get_default_mechanism(chosen.kind)
    with open_session(options) as db:
        columns = Columns.model_validate(chosen.columns)
        profiled = ProfiledSource(chosen.profiles, lambda: prepare_table(db, source, columns))
        proposed = mechanism.propose(db, profiled)
    if isinstance(mechanism.shape, TableShape) and not mechanism.shape.numeric:
        proposed = replace(proposed, remarks=(*proposed.remarks, *LEARNERS))
    private = isinstance(mechanism.composition, BudgetComposition)
    if private and source.kind == "csv":  # no record decides the types of such a release
        whole = {one.name: one.type for one in chosen.profiles if one.type == "BIGINT"}
        how_read |= {"options": how_read.get("options", {}) | {"types": whole}} if whole else {}
    texts = [f"read as NULL: {', '.join(map(repr, one))} in {name}" for name, one in marked.items()]
    chosen = replace(chosen, remarks=(*texts, *chosen.remarks))
    shown = {**written, **how_read} if written else {}
    return _make_document(shown, chosen, proposed, reduced=private, unnamed=not name_population(source))


def _read_as_null(source: Source, how_read: dict[str, Any], marked: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return how to read a source so that texts that stand for a missing value are NULL."""
    if source.kind == "csv":
        every = {"", *(text for one in marked.values() for text in one)}
        return {**how_read, "options": {"nullstr": sorted(every)}}
    replaced = []
    for name, texts in marked.items():
        value: exp.Expr = column(name)
        for text in texts:
            value = exp.Nullif(this=value, expression=exp.Literal.string(text))
        replaced.append(alias_as(value, name))
    records: exp.Expr = quoted_identifier("source")
    if "table" in how_read:
        records = exp.to_table(how_read["table"], dialect=DIALECT)
    elif "query" in how_read:
        records = exp.maybe_parse(how_read["query"], dialect=DIALECT).subquery("records")
    everything = exp.Star(replace=replaced)
    return {"query": exp.select(everything).from_(records).sql(DIALECT, identify=True)}


def _join_tables(name: str, tables: Sequence[str], options: Options) -> str:
    """Return a query that joins tables of a database by the columns that name records or persons in all of them."""
    fields: list[dict[str, str]] = []
    for one in tables:
        with open_session(options) as db:
            mount_persons(db, _make_source({"database": name, "table": one}))
            fields.append({fold_name(field.name): field.name for field in db.list_fields(temp_table("source"))})
    shared = set.intersection(*map(set, fields))
    every = [key for one in fields for key in one]
    keys = [written for key, written in fields[0].items() if key in shared and is_identifying_name(written)]
    others = {key for key in every if every.count(key) > 1} - {fold_name(key) for key in keys}
    if not keys or others:
        why = (
            f"both have {', '.join(sorted(others))}" if others else "they share no column that names records or persons"
        )
        raise UsageError(f"{name}: tables {' and '.join(tables)}: {why}; write the join as source.query")
    joined = exp.select(exp.Star()).from_(exp.to_table(tables[0], dialect=DIALECT))
    for one in tables[1:]:
        joined = joined.join(exp.to_table(one, dialect=DIALECT), using=[quoted_identifier(key) for key in keys])
    return joined.sql(DIALECT, identify=True)


def _make_source(fields: dict[str, Any]) -> Source:
    try:
        return Source.model_validate(fields)
    except ValidationError as error:
        raise UsageError(error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")) from error


def _as_spec_path(name: str, base: Path | None) -> str:
    """Return a path as a specification in folder ``base`` has it."""
    if url_scheme(name):
        return name
    place = Path(name).absolute()
    return (place if base is None else Path(os.path.relpath(place, base))).as_posix()


def _make_document(
    source: dict[str, Any], chosen: ChosenRoles, proposed: Proposal, *, reduced: bool, unnamed: bool
) -> str:
    """Return the text.

    ``reduced``: only one record of each person can be published, so there is no choice; ``unnamed``: nothing says whom
    the table is about.
    """
    document = tomlkit.document()
    first = "Proposed by privsql init."
    roles = (
        ""
        if "categories" in chosen.columns
        else " Check the roles: a column that an attacker may know is a quasi-identifier."
    )
    head = (first + roles, "", *chosen.remarks) if chosen.remarks else (first,)
    for line in (*head, *proposed.remarks):
        document.add(tomlkit.comment(line))
    if place := _describe_source(source, chosen, reduced=reduced):
        if unnamed:
            place.add(
                tomlkit.comment('population = "clinic"  # publish asks whom the table is about; name these people')
            )
        document["source"] = place
    document["columns"] = _without_columns(chosen.columns, proposed.left_out)
    document["mechanism"] = proposed.parameters
    return tomlkit.dumps(document)


def _describe_source(source: dict[str, Any], chosen: ChosenRoles, *, reduced: bool) -> Table:
    """Return the table ``[source]``; what becomes of persons with several records is left open, or the only choice."""
    section = tomlkit.table()
    section.update({**source, **({"id": chosen.id} if chosen.id else {})})
    if chosen.person is not None:
        section["person"] = chosen.person
        if reduced:
            section["persons"] = "one"
            section.add(
                tomlkit.comment('or persons = "some", and in [mechanism] max_records: as many of each share epsilon')
            )
        else:
            section.add(tomlkit.comment("Some persons have several records. Choose one of each, or all with 'count':"))
            section.add(tomlkit.comment('persons = "one"'))
    elif chosen.id is not None and not reduced:
        section.add(tomlkit.comment("If these ids are of persons, declare that, and promises are about persons:"))
        section.add(tomlkit.comment(f"person = {tomlkit.string(chosen.id).as_string()}"))
    return section


def _without_columns(columns: dict[str, Any], left_out: Collection[str]) -> dict[str, Any]:
    """Return the roles of columns, without some of them: wherever they are named, and what would then hold nothing."""
    if not left_out:
        return columns
    remaining: dict[str, Any] = {}
    for role, named in columns.items():
        if isinstance(named, dict):
            remaining[role] = {name: how for name, how in named.items() if name not in left_out}
        else:
            remaining[role] = [name for name in named if name not in left_out] if isinstance(named, list) else named
    return {role: named for role, named in remaining.items() if named}


def _only_table(path: Path) -> str:
    names = list_tables(path)
    if len(names) != 1:
        held = ", ".join(names) or "no table"
        ways = "choose one or several to join as source.table, or give a source.query"
        raise UsageError(f"{path} holds {held}" + (f"; {ways}" if names else ""))
    return names[0]
