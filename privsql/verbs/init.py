"""Examine a source, and propose a specification with which it can be published."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Unpack
from urllib.parse import urlsplit

import numpy as np
import tomlkit
from pydantic import ValidationError
from sqlglot import exp

from privsql.calls import PathLike, as_optional_path
from privsql.engine.database import HERE, TRAITS, Options, RunKeywords, Warehouse, options_from
from privsql.engine.files import fold_name, is_files, url_scheme
from privsql.engine.open import list_tables
from privsql.engine.sqlfiles import DIALECT, Field, Holes, alias_as, column, fill, quoted_identifier, temp_table
from privsql.errors import InfeasibleError, UsageError, suggest_name
from privsql.mechanisms.base import BudgetComposition, ItemSetShape, ProfiledSource, Proposal, TableShape
from privsql.mechanisms.registry import DEFAULT, KINDS, PROMISES, get_default_mechanism, get_mechanism
from privsql.source.keywords import read_keywords
from privsql.source.look import MOST_CELLS, MOST_RECORDS, Column, look_at, share_alone
from privsql.source.places import Source, as_frame, is_table
from privsql.source.population import name_population
from privsql.source.profile import (
    ChosenRoles,
    choose_noisy_roles,
    find_missing_markers,
    find_numeric_kind,
    is_identifying_name,
    refuse_uncategorical,
)
from privsql.source.records import prepare_table
from privsql.source.roles import (
    MANY,
    Roles,
    find_basket,
    find_order,
    is_amount,
    is_harmless,
    list_likely_sensitive,
    propose_roles,
)
from privsql.source.spec import Columns
from privsql.source.spec import schema as specification_schema
from privsql.source.table import find_column, index_names, is_publishable, mount_persons
from privsql.source.texts import Misreading, find_date_format, find_misread
from privsql.verbs.sessions import open_session

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tomlkit.items import Table

    from privsql.model.records import Profile
    from privsql.source.keywords import ArrowStream


INIT_KEYS = (
    "source.table", "source.query", "source.engine", "columns.sensitive", "columns.categorical", "mechanism.kind",
    "source.person",
)  # fmt: skip
READ_KEYS = (  # keys of a specification that say how to read a source
    "source.options", "source.reader", "source.hive_partitioning", "source.union_by_name", "source.population"
)  # fmt: skip


def init(
    source: PathLike | ArrowStream | None = None,
    *,
    sensitive: str | None = None,
    mechanism: str | None = None,
    set: Mapping[str, Any] | None = None,  # noqa: A002
    base: PathLike | None = None,
    protect: Sequence[str] | str = (),
    promise: str | None = None,
    accept: bool = False,
    explain: bool = False,
    schema: bool = False,
    **how: Unpack[RunKeywords],
) -> str:
    """Propose a specification for a source: roles of its columns, and parameters that can be met.

    Args:
        source: A file, an address of Postgres, or a table in Python. The specification can't name a table in Python;
            once it is saved, ``privsql.load(path, source=table)`` reads it.
        sensitive: The sensitive column; None to recognize it by its name.
        mechanism: The kind of mechanism; by default the one that suits the sensitive column.
        set: Keys of a specification that say how to read the source, such as {"source": {"table": "visits"}}.
            source.table may list several tables, which are then joined by the ids of records or persons that they
            share. ``INIT_KEYS`` and ``READ_KEYS`` list all possible keys.
        base: The folder where the specification will lie. Its paths are then relative to that folder; otherwise they
            are absolute.
        protect: Values of the sensitive column to protect; the others need no protection.
        promise: The promise to propose: "tables" (a privacy budget hides each record's value) or "bucketize" (a bound
            on an attacker's belief). By default the first that suits the column.
        accept: Answer all questions cautiously: leave out the columns that they are about, and confirm the list of
            sensitive values.
        explain: Name each column with the reason for its role.
        schema: Return the JSON Schema of specifications, for editors, without reading a source.
        **how: How the engine runs (``RunKeywords``).

    Returns:
        The text of a TOML file.

    Raises:
        UsageError: The columns can't have the roles that the mechanism needs, or the sensitive values are not
            categories.
        EngineError: A file can't be read.
        InfeasibleError: Nothing can be published.
    """
    if schema == (source is not None):
        raise UsageError("init takes a source, or option schema without one")
    if schema or source is None:
        return specification_schema()
    keywords = {"sensitive": sensitive, "mechanism": mechanism, "set": set}
    given = {".".join(path): value for path, value in read_keywords(keywords).items()}
    known = (*INIT_KEYS, *READ_KEYS)
    if (wrong := next((key for key in given if key not in known), None)) is not None:
        raise UsageError(f"init takes {', '.join(known)}, not {wrong}{suggest_name(wrong, known)}")
    read_as = {key.removeprefix("source."): given[key] for key in READ_KEYS if key in given}
    table, query, engine, sensitive, categorical, kind, person = map(given.get, INIT_KEYS)
    sensitive = _as_single_name(sensitive)
    tables = (table,) if isinstance(table, str) else tuple(table or ())
    protected = (protect,) if isinstance(protect, str) else tuple(map(str, protect))
    wishes = Wishes(kind, sensitive, bool(categorical), protected, promise, accept, explain, person)
    if promise is not None and promise not in PROMISES:
        raise UsageError(f"promise {promise!r} is not one of {', '.join(PROMISES)}")
    if kind is not None:
        get_default_mechanism(kind)
    if query is not None and tables:
        raise UsageError("give source.table or source.query, not both")
    with options_from(how, init) as options:
        if is_table(source):
            table_place = Place("the table", {"frame": as_frame(source)}, {"query": query, **read_as})
            return _propose_spec(table_place, wishes, options)
        if not isinstance(source, str | os.PathLike):
            raise UsageError(f"{type(source).__name__} is neither a path nor a table")
        name = os.fspath(source)
        holder = next((one for one, traits in TRAITS.items() if url_scheme(name) in traits.schemes), None)
        if holder is not None:
            relation = tomlkit.inline_table()
            relation.update(_describe_relation(name, tables, query))
            held = {holder: relation}
            return _propose_spec(Place("the table", {holder: relation.unwrap()}, read_as, held), wishes, options)
        if engine not in (None, HERE):
            path = _as_spec_path(name, as_optional_path(base, "base"))
            place, written = {"file": name, "engine": engine}, {"file": path, "engine": engine}
        elif not tables and (is_files(name) or "reader" in read_as):
            place, written = {"file": name}, {"file": _as_spec_path(name, as_optional_path(base, "base"))}
        else:
            if query is None:
                tables = tables or (_only_table(Path(name)),)
                query = _join_tables(name, tables, options) if len(tables) > 1 else None
            place, written = {"database": name}, {"database": _as_spec_path(name, as_optional_path(base, "base"))}
        how_read = {"query": query} if query is not None or not tables else {"table": tables[0]}
        return _propose_spec(Place(name, place, how_read | read_as, written), wishes, options)


SEVERAL = (
    "init proposes for one sensitive column, not for {}; 'publish' takes several, with mechanism.algorithm = "
    "'two-size' and a threshold for each of them in mechanism.components"
)


def _as_single_name(sensitive: Any) -> str | None:
    """Return the only sensitive column that the caller names in ``set``, be it a text or a list; None if there is none.

    Raises:
        UsageError: The list has several names.
    """
    if sensitive is None or isinstance(sensitive, str):
        return sensitive
    names = list(sensitive) if isinstance(sensitive, list | tuple) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise UsageError(f"columns.sensitive: {sensitive!r} is not the name of a column")
    if len(names) > 1:
        raise UsageError(SEVERAL.format(" and ".join(names)))
    return str(names[0])


def _describe_relation(address: str, tables: Sequence[str], query: str | None) -> dict[str, Any]:
    """Return the section ``[source]`` for a table or query on a server.

    Args:
        address: The address of the server.
        tables: The names of tables.
        query: A SELECT in place of a table; None for none.

    Raises:
        UsageError: The address has a password, which would be written down, or there is not exactly one table or query.
    """
    if len(tables) + (query is not None) != 1:
        raise UsageError("a server needs one source.table, or a source.query in the server's SQL")
    if urlsplit(address).password is not None or "password" in (urlsplit(address).query or ""):
        raise UsageError("the address holds a password; leave it out, and set PGPASSWORD or use ~/.pgpass")
    return {"uri": address, **({"query": query} if query is not None else {"table": tables[0]})}


@dataclass(frozen=True)
class Wishes:
    """What the caller of ``init`` asks for. The values of the source decide the rest.

    Attributes:
        kind: The kind of mechanism; None to choose it.
        sensitive: The sensitive column; None to recognize it.
        categorical: Whether numbers in the sensitive column are codes of categories.
        protect: Values of the sensitive column to protect; the others need no protection.
        promise: The promise to propose: "tables" (a privacy budget hides each record's value) or "bucketize" (a bound
            on an attacker's belief); None to choose it.
        accept: Whether to answer all questions to the publisher cautiously: leave out the columns that they are about,
            and confirm the list of sensitive values.
        explain: Whether to name each column with the reason for its role.
        person: The column that identifies persons; None to recognize it.
    """

    kind: str | None = None
    sensitive: str | None = None
    categorical: bool = False
    protect: tuple[str, ...] = ()
    promise: str | None = None
    accept: bool = False
    explain: bool = False
    person: str | None = None


@dataclass(frozen=True)
class Place:
    """Where the records are and how they are read.

    Attributes:
        called: The name of the source in messages.
        fields: The keys of ``[source]`` by which ``init`` itself finds the records; one may be a table in Python.
        how_read: The keys of ``[source]`` that say how the records are read.
        written: The keys that the proposed specification has in place of ``fields``, with paths as they are seen from
            its folder. None if it can't say where the records are, as for a table in Python.
    """

    called: str
    fields: dict[str, Any]
    how_read: dict[str, Any]
    written: dict[str, Any] | None = None

    def as_section(self) -> dict[str, Any]:
        """Return the keys of ``[source]`` for a specification; empty if it can't say where the records are."""
        return {**self.written, **self.how_read} if self.written else {}

    def with_types(self, columns: Iterable[Column | Profile | Field], kinds: Collection[str]) -> Place:
        """Return the place with a fixed type for some columns of a CSV file.

        Without that, the values of the records would decide the types.

        Args:
            columns: The columns.
            kinds: The SQL types that are fixed; columns of other types are left as they are.
        """
        typed = {one.name: one.type for one in columns if one.type in kinds}
        options = self.how_read.get("options", {})
        options = options | {"types": typed | options.get("types", {})}
        return replace(self, how_read={**self.how_read, "options": options}) if typed else self


def _propose_spec(place: Place, wishes: Wishes, options: Options) -> str:
    """Examine a source and return the text of the proposed specification."""
    how_read = {key: value for key, value in place.how_read.items() if value is not None}
    texts: list[str] = []
    known: list[Misreading] = []
    meant: dict[str, Any] | None = how_read
    look = None
    try:
        while meant is not None:  # the file is read again if a column was misread
            how_read = meant
            with open_session(options) as db:
                mount_persons(db, source := _make_source(place.fields | how_read))
                lists = [fold_name(field.name) for field in db.list_fields(temp_table("source")) if field.is_list]
                is_list = len(lists) == 1 if wishes.sensitive is None else fold_name(wishes.sensitive) in lists
                if wishes.kind is None and is_list:
                    wishes = replace(wishes, kind=find_kind_of_sets())
                is_table = isinstance(get_default_mechanism(wishes.kind or DEFAULT).shape, TableShape)
                meant = _read_as_meant(db, source, how_read, texts, known)
                if meant is None and is_table:
                    look = _look_at_source(db, source, options)
        place = replace(place, how_read=how_read)
        if look is not None:
            return _propose_table(place, source, look, wishes, texts, options)
        return _propose_noisy(place, source, wishes, texts, options)
    except UsageError as error:
        raise UsageError(f"{place.called}: {error}") from error


def _read_as_meant(
    db: Warehouse, source: Source, how_read: dict[str, Any], texts: list[str], known: list[Misreading]
) -> dict[str, Any] | None:
    """Return how to read a source so that no value is lost or hidden; None if it is already read so.

    Args:
        db: The session in which the source is readable.
        source: The source.
        how_read: The keys of ``[source]`` that say how it was read.
        texts: Lines for the publisher about columns that are read in another way; this function appends to them.
        known: The misread columns that were found before; this function appends to them.

    Raises:
        UsageError: A column can be read in several ways, and only the owner of the file knows which is right.
    """
    marked = {} if texts or source.external_relation is not None else find_missing_markers(db, temp_table("source"))
    if marked:
        texts += [f"read as NULL: {', '.join(map(repr, one))} in {name}" for name, one in marked.items()]
        return _read_as_null(source, how_read, marked)
    misread = [one for one in find_misread(db, source, None) if one not in known]
    date_format = None if misread else find_date_format(db, source)
    if not misread and date_format is None:
        return None
    if (unsure := next((one for one in misread if not one.surely), None)) is not None:
        raise UsageError(f"{unsure} (init takes source.options, too)")
    known += misread
    written = dict(how_read.get("options", {}))
    for one in misread:
        texts.append(f"{one.column} {one.why}: see source.options")
        for key, value in one.options.items():
            written[key] = {**written.get(key, {}), **value} if isinstance(value, dict) else value
    written |= {} if date_format is None else {"dateformat": date_format}
    return {**how_read, "options": written}


POPULATION = 'population = "clinic"  # publish asks whom the table is about; name these people'

# Tables with a sensitive column ---------------------------------------------------------------------------------------

DECIDE = (
    "nothing is published until this section is gone: delete it to leave these out, or move names to quasi_identifiers"
)
QUESTIONS = {
    "measurements": "leave out, or publish rounded, by columns.bins",
    "sensitive": "may harm by itself: leave out, or name it with sensitive=",
    "dates": "leave out, or publish as months: columns.bins",
    "unknown": "do outsiders know it? leave out, or publish",
    "persons": "does it name persons? then it is source.person",
    "more": "known to outsiders, beyond fifteen",
}
LISTED = "public knowledge? then move this line to [mechanism]"
NAMED = 8
TYPED = ("BIGINT", "DOUBLE", "DATE", "TIMESTAMP", "BOOLEAN")  # types that the specification must state for CSV files


@dataclass(frozen=True)
class Look:
    """What ``init`` has seen of a source.

    Attributes:
        columns: The columns that can be published, as a sample of the records shows them.
        records: The number of all records.
        left_out: Why each of the other columns can't be published, by the column's name.
        groups: A second sample for each column that is unique in the first sample but not in the table, by the column's
            name. It has all records of some values of this column, to see whether the column identifies persons.
    """

    columns: list[Column]
    records: int
    left_out: dict[str, str]
    groups: dict[str, list[Column]]


def _propose_table(place: Place, source: Source, look: Look, wishes: Wishes, texts: list[str], options: Options) -> str:
    """Return the specification for a table with a sensitive column, as TOML.

    The roles follow from the values, and the promise from the precision that it allows.

    Args:
        place: Where the records are.
        source: The source.
        look: What was seen of it.
        wishes: What the caller asks for.
        texts: Lines about how the source is read, which become comments.
        options: How the engine runs.
    """
    columns, records = look.columns, look.records
    sensitive = _find_sensitive(columns, wishes.sensitive)
    secret = next(one for one in columns if one.name == sensitive)
    person = None if wishes.person is None else _find_named(columns, wishes.person, "source.person: ")
    roles = propose_roles(columns, sensitive, look.groups, person)
    for name, reason in look.left_out.items():
        roles.left_out.setdefault(name, reason)
    if source.external_relation is not None:  # other engines don't choose records of persons or make such bins
        if roles.person is not None:
            roles.ask("persons", roles.person)
            roles.person = None
        for name, how in list(roles.published.items()):
            if how == "month" or (how and "prefix" in how):
                del roles.published[name]
                roles.ask("dates" if how == "month" else "unknown", name)
    changes = roles.person is not None and sensitive in roles.changing and wishes.kind is None
    if changes and wishes.promise is None and not wishes.protect:
        return _propose_changing(place, source, roles, texts, options)
    if changes:
        texts = [*texts, f"{sensitive} changes within {roles.person}, and one record of each is published."]
    order = None if roles.person is None else find_order(columns, roles)
    taken: dict[str, str] = {}
    if roles.person is not None:
        taken = {"person": roles.person, "persons": "one"}
        taken |= {"persons": "first", "order": order} if order is not None else {}
        if order in roles.published and roles.published[order] is None:  # first records all have about the same number
            del roles.published[order]
            roles.left_out[order] = "orders the records of a person"
        source = _make_source({**place.fields, **place.how_read, **taken})
    wanted = [name for name in roles.published] or [name for names in roles.asked.values() for name in names]
    free = wishes.kind is None and wishes.promise is None and not is_amount(secret, categorical=wishes.categorical)
    basket = find_basket(columns, sensitive) if free and not roles.published else None
    if basket is not None and not {*wanted} - {basket}:
        return _propose_changing(place, source, replace(roles, person=basket), texts, options, CARRIED)
    if not wanted:
        raise UsageError(
            "no column is left to publish beside the sensitive one; "
            + "; ".join(f"{name} {reason}" for name, reason in list(roles.left_out.items())[:NAMED])
        )
    if wishes.accept and not roles.published:
        raise UsageError(
            f"nothing is left to publish beside {sensitive!r}; outsiders may know: {', '.join(wanted[:NAMED])}"
        )
    bins = {name: how for name, how in roles.published.items() if how is not None}
    coded = {"categorical": True} if wishes.categorical else {}
    nulls = {"nulls": {sensitive: "value"}} if secret.nulls else {}
    stated = {"sensitive": sensitive, **({"bins": bins} if bins else {}), **nulls, **coded}
    prepared = Columns.model_validate({**stated, "quasi_identifiers": wanted})
    with open_session(options) as db:
        profiled = ProfiledSource(
            (),
            cache(lambda: prepare_table(db, source, prepared)),
            harmless=[value for value in ("NULL", *secret.texts) if is_harmless(value, secret)],
            protect=wishes.protect,
            weights=bool(roles.weights),
            persons=roles.person is not None,
            first=order is not None,
        )
        chosen, other = _choose_promise(db, profiled, wishes, secret)
    document = tomlkit.document()
    shown = f"{records:,} records" + (
        f", of which {secret.records:,} were looked at" if secret.records < records else ""
    )
    lines = [f"Proposed by privsql init for {shown}.", *chosen.lines]
    alone = share_alone([one for one in columns if one.name in roles.published], bins)
    lines.append(f"With their quasi-identifiers {alone:.0%} of the records are alone.")
    for name in roles.weights:
        weights = next(one for one in columns if one.name == name).sorted_numbers
        worth = float(weights.sum() ** 2 / np.square(weights).sum() / len(weights))
        lines.append(f"{name} is a survey weight: weighted answers are worth those of {worth:.0%} of the records.")
    if chosen.precision is not None and chosen.precision.is_useless:
        lines.append("Publish asks for --allow-useless.")
    for line in (*lines, *chosen.remarks, *texts):
        document.add(tomlkit.comment(line))
    decide = _ask(roles, chosen, wishes)
    if decide is not None:
        document["decide"] = decide
    kind, algorithm = chosen.parameters["kind"], chosen.parameters.get("algorithm")
    composition = (get_mechanism(kind, algorithm) if algorithm else get_default_mechanism(kind)).composition
    if source.kind == "csv" and isinstance(composition, BudgetComposition):
        asked = [] if wishes.accept else [name for names in roles.asked.values() for name in names]
        published = [one for one in columns if one.name in (*roles.published, sensitive, *asked)]
        place = place.with_types(_list_read(place, options) or published, TYPED)
    section = tomlkit.table()
    keys = place.as_section()
    read_as = keys.pop("options", None)
    section.update(keys)
    if roles.id is not None:
        section["id"] = roles.id
    if roles.single is not None and wishes.person is not None:
        section["person"] = roles.single
    elif roles.single is not None:
        section.add(tomlkit.comment(f'person = "{roles.single}"  # if it names persons: each record is one person'))
    if taken:
        section.update(taken)
        how = "the secret key" if order is None else f"{order}, which must tell nothing of {sensitive}"
        section.add(tomlkit.comment(f"one record of each person is published, chosen by {how}"))
    if place.written and not name_population(source):
        section.add(tomlkit.comment(POPULATION))
    if read_as is not None:  # after the comments, which would become part of this table
        section["options"] = read_as
    if section:
        document["source"] = section
    document["columns"] = _write_columns({"quasi_identifiers": list(roles.published), **stated}, roles, wishes)
    parameters = {**chosen.parameters, **(chosen.decide if wishes.accept else {})}
    document["mechanism"] = parameters
    if other is not None:
        document.add(tomlkit.nl())
        document.add(tomlkit.comment("Or, in place of the mechanism above:"))
        for line in (*other.lines, *tomlkit.dumps({"mechanism": {**other.parameters, **other.decide}}).splitlines()):
            document.add(tomlkit.comment(line))
    document.add(tomlkit.nl())
    for line in _explain_left_out(roles, wishes):
        document.add(tomlkit.comment(line))
    return tomlkit.dumps(document)


def _look_at_source(db: Warehouse, source: Source, options: Options) -> Look:
    """Examine a source that is readable in the session: all of its records, or a sample if there are many."""
    options.report.start_step("Looking at the columns")
    relation = temp_table("source")
    fields = db.list_fields(relation)
    left_out = {one.name: f"is {one.type}, which can't be published" for one in fields if not is_publishable(one)}
    fields = [one for one in fields if is_publishable(one)]
    records = int(db.rows(fill("core/size", {"table": relation}))[0][0])
    if not records:
        raise UsageError("the source has no records")
    if not fields:
        raise UsageError("no column can be published")
    most = min(MOST_RECORDS, MOST_CELLS // len(fields))
    if records > MOST_RECORDS == most and source.external_relation is None:
        sample = db.arrow(fill("duckdb/sampled", {"table": relation}))
    else:
        sample = db.arrow(fill("core/first", {"table": relation, "most": exp.Literal.number(most)}))
    columns = look_at(fields, sample)
    groups = _look_at_persons(db, columns, records) if source.external_relation is None else {}
    return Look(columns, records, left_out, groups)


def _choose_promise(
    db: Warehouse, source: ProfiledSource, wishes: Wishes, secret: Column
) -> tuple[Proposal, Proposal | None]:
    """Propose parameters for the first two promises that suit the sensitive column.

    Each promise is that of a mechanism: a privacy budget hides each record's value, or an attacker's belief has a
    bound. The second proposal is None if only one suits, or if the caller or the type of the column determines the
    mechanism.

    Args:
        db: The session.
        source: The profiles of the source's columns.
        wishes: What the caller asks for.
        secret: The sensitive column.

    Raises:
        InfeasibleError: The promise that the caller wishes can't be kept.
    """
    if wishes.kind is not None or is_amount(secret, categorical=wishes.categorical):
        mechanism = get_default_mechanism(wishes.kind or find_numeric_kind())
        different = {Field(secret.name, secret.type): secret.different}
        refuse_uncategorical(mechanism, different, secret.different, secret.filled, categorical=wishes.categorical)
        return mechanism.propose(db, source), None
    names = [wishes.promise] if wishes.promise is not None else [*PROMISES]
    found, reasons = [], []
    for name in names:
        try:
            found.append(get_mechanism(*PROMISES[name]).propose(db, source))
        except InfeasibleError as error:
            reasons.append(f"{name}: {error}")
    if not found:
        if wishes.promise is not None:
            raise InfeasibleError("; ".join(reasons))
        last = get_mechanism(*PROMISES[names[-1]])  # this promise can be kept even if no useful one can
        found.append(last.propose(db, replace(source, any_rule=True)))
    first = replace(found[0], remarks=(*reasons, *found[0].remarks))
    return first, found[1] if len(found) > 1 else None


def _ask(roles: Roles, chosen: Proposal, wishes: Wishes) -> Table | None:
    """Return the section ``[decide]`` of a specification, with the questions to the publisher.

    It is None if nothing is asked, or if the caller accepts the cautious answers.

    Args:
        roles: The proposed roles, with the columns that the publisher has to decide about.
        chosen: The proposed parameters; those that were read from the records have to be confirmed.
        wishes: What the caller asks for.
    """
    if wishes.accept or not (roles.asked or chosen.decide):
        return None
    section = tomlkit.table()
    section.comment(DECIDE)
    for key, values in chosen.decide.items():
        section.add(key, tomlkit.item(values).comment(LISTED))
    for question, names in roles.asked.items():
        few = names if wishes.explain else names[:NAMED]
        more = f"and {len(names) - len(few):,} more, which --explain names; " if len(names) > len(few) else ""
        section.add(question, tomlkit.item(few).comment(more + QUESTIONS[question]))
    return section


def _write_columns(columns: dict[str, Any], roles: Roles, wishes: Wishes) -> Table:
    """Return the section ``[columns]`` of a specification.

    Bins for columns that the publisher has to decide about are offered as comments.

    Args:
        columns: The keys of the section. The key "bins" is removed from this dictionary.
        roles: The proposed roles, with the columns that the publisher has to decide about.
        wishes: What the caller asks for.
    """
    bins = columns.pop("bins", {})
    section = tomlkit.table()
    section.update({name: how for name, how in columns.items() if not isinstance(how, dict)})
    asked = [] if wishes.accept else [name for names in roles.asked.values() for name in names]
    offered = {name: roles.rounded[name] for name in asked if name in roles.rounded}
    of_columns = tomlkit.table()
    of_columns.update({name: _as_inline(how) for name, how in bins.items()})
    for name, how in list(offered.items())[: None if wishes.explain else NAMED]:
        line = tomlkit.table()
        line[name] = _as_inline(how)
        of_columns.add(tomlkit.comment(line.as_string().strip()))
    if bins or offered:
        section["bins"] = of_columns
    section.update({name: how for name, how in columns.items() if isinstance(how, dict)})
    return section


def _as_inline(how: Any) -> Any:
    """Return a column's bins as TOML writes them in one line; ``how`` may be a dictionary, a text or a number."""
    if not isinstance(how, dict):
        return how
    table = tomlkit.inline_table()
    table.update(how)
    return table


def _explain_left_out(roles: Roles, wishes: Wishes) -> list[str]:
    """Return a line for each reason why columns are left out, with the names of these columns."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in roles.left_out.items():
        by_reason.setdefault(reason, []).append(name)
    lines = []
    for reason, names in by_reason.items():
        few = names if wishes.explain else names[:NAMED]
        more = f" and {len(names) - len(few)} more" if len(names) > len(few) else ""
        lines.append(f"left out: {', '.join(few)}{more}: {reason}")
    return lines


def _look_at_persons(db: Warehouse, columns: Sequence[Column], records: int) -> dict[str, list[Column]]:
    """Examine columns that may identify persons: unique in the sample, but with repeated values in the table.

    Args:
        db: The session in which the source is readable.
        columns: All columns of the sample.
        records: The number of records in the table.

    Returns:
        A second sample for each such column, by its name: all columns, and all records of some of its values. Empty if
        the first sample was the whole table.
    """
    seen = columns[0].records
    if seen == records:
        return {}
    groups = {}
    relation, fields = temp_table("source"), [Field(one.name, one.type) for one in columns]
    for one in columns:
        if not (one.is_whole or one.is_text or one.type == "UUID") or one.different < seen / 2:
            continue
        holes: Holes = {"source": relation, "column": column(one.name)}
        _, filled, different, _ = db.rows(fill("core/profile", holes))[0]
        if different < filled / MANY:
            parts = exp.Literal.number(max(1, records // seen))
            holes = {"table": relation, "column": column(one.name), "parts": parts, "most": exp.Literal.number(seen)}
            groups[one.name] = look_at(fields, db.arrow(fill("duckdb/persons", holes)))
    return groups


def _find_sensitive(columns: Sequence[Column], wanted: str | None) -> str:
    """Return the name of the sensitive column as the source spells it.

    Raises:
        UsageError: No column is wanted (``wanted`` is None), or the source has no such column. The message names likely
            ones.
    """
    if wanted is not None:
        known = {fold_name(one.name) for one in columns}
        parts = [one.strip() for one in wanted.split(",")]
        if fold_name(wanted) not in known and len(parts) > 1 and known.issuperset(map(fold_name, parts)):
            raise UsageError(SEVERAL.format(" and ".join(parts)))
        return _find_named(columns, wanted)
    likely = list_likely_sensitive(columns)[:NAMED]
    if not likely:
        raise UsageError("no column can be sensitive: each has one value, or names records or people")
    raise UsageError(f"columns.sensitive is missing; option sensitive names it, likely ones: {', '.join(likely)}")


def _find_named(columns: Sequence[Column], name: str, where: str = "") -> str:
    """Return a column's name as the source spells it, for a name that may differ in case.

    Args:
        columns: The columns of the source.
        name: The name as the caller spells it.
        where: The beginning of the error message.

    Raises:
        UsageError: There is no such column.
    """
    return find_column(index_names([Field(one.name, one.type) for one in columns]), name, where).name


# Item sets and tables of counts ---------------------------------------------------------------------------------------


def _propose_noisy(place: Place, source: Source, wishes: Wishes, texts: list[str], options: Options) -> str:
    """Return the specification for item sets or for a table of categories, neither of which has a sensitive column.

    Args:
        place: Where the records are.
        source: The source.
        wishes: What the caller asks for.
        texts: Lines about how the source is read, which become comments.
        options: How the engine runs.

    Returns:
        The specification as TOML.
    """
    kind = wishes.kind or DEFAULT
    with open_session(options) as db:
        mount_persons(db, source)
        chosen = choose_noisy_roles(db, temp_table("source"), kind, wishes.sensitive, options.report)
    mechanism = get_default_mechanism(kind)
    with open_session(options) as db:
        columns = Columns.model_validate(chosen.columns)
        profiled = ProfiledSource(chosen.profiles, lambda: prepare_table(db, source, columns))
        proposed = mechanism.propose(db, profiled)
    if source.kind == "csv":
        place = place.with_types(_list_read(place, options) or chosen.profiles, ["BIGINT"])
    chosen = replace(chosen, remarks=(*texts, *chosen.remarks))
    return _make_document(place.as_section(), chosen, proposed, unnamed=not name_population(source))


CARRIED = (
    "No column is left to publish beside {sensitive}. Proposed is the set of its values for each {person}: it answers",
    "how many have a value, or several together.",
)
CHANGING = (
    "{sensitive} changes within {person}, so one record of each would throw most of it away. Proposed is the set of",
    "its values for each {person}: it answers how many have a value, or several together. For other questions name a",
    "column that does not change, or give --promise: then one record of each {person} is published.",
)


def find_kind_of_sets() -> str:
    """Return the kind of mechanism that ``init`` proposes for item sets."""
    return next(kind for kind in KINDS if isinstance(get_default_mechanism(kind).shape, ItemSetShape))


def _refuse_records() -> NoReturn:
    raise TypeError("item sets are proposed without a look at the records")


def _propose_changing(
    place: Place, source: Source, roles: Roles, texts: list[str], options: Options, why: tuple[str, ...] = CHANGING
) -> str:
    """Return the specification for a sensitive column whose value changes between the records of a person.

    It publishes the records of each person, or of each other group, as one item set: the set of their sensitive values.

    Args:
        place: Where the records are.
        source: The source.
        roles: The proposed roles: the sensitive column, and the column of persons or other groups, such as baskets.
        texts: Lines about how the source is read, which become comments.
        options: How the engine runs.
        why: Lines that say why item sets are proposed, which become comments, too.
    """
    kind = find_kind_of_sets()
    columns = {"record": roles.person, "item": roles.sensitive}
    with open_session(options) as db:
        proposed = get_default_mechanism(kind).propose(db, ProfiledSource((), _refuse_records))
    remarks = [line.format(sensitive=roles.sensitive, person=roles.person) for line in why]
    chosen = ChosenRoles(columns, (), (*texts, *remarks), kind=kind)
    section = place.as_section()
    if why is CHANGING:  # a basket need not belong to one person
        section |= {"person": roles.person}
    return _make_document(section, chosen, proposed, unnamed=not name_population(source))


def _read_as_null(source: Source, how_read: dict[str, Any], marked: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return the keys of ``[source]`` with which texts for a missing value, such as "n/a", are read as NULL.

    Args:
        source: The source.
        how_read: The keys of ``[source]`` that say how it was read.
        marked: The texts that stand for a missing value, by column.
    """
    if source.kind == "csv":
        every = {"", *(text for one in marked.values() for text in one)}
        options = how_read.get("options", {})
        return {**how_read, "options": {**options, "nullstr": sorted({*every, *options.get("nullstr", ())})}}
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
    """Return a query that joins tables of a database by the ids of records or persons that all of them have.

    Args:
        name: The database.
        tables: The tables.
        options: How the engine runs.

    Raises:
        UsageError: The tables share no such id, or share other columns as well.
    """
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


def _list_read(place: Place, options: Options) -> list[Field]:
    """Return the columns of a CSV file that the query in ``[source]`` reads; empty if there is no query.

    If the release spends a privacy budget, the specification must state the types of these columns.
    """
    query = place.how_read.get("query")
    if query is None:
        return []
    how_read = {key: value for key, value in place.how_read.items() if key != "query"}
    with open_session(options) as db:
        mount_persons(db, _make_source(place.fields | how_read))
        fields = db.list_fields(temp_table("source"))
    tree = exp.maybe_parse(query, dialect=DIALECT)
    if any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star)):
        return fields
    named = {fold_name(one.name) for one in tree.find_all(exp.Column)}
    return [field for field in fields if fold_name(field.name) in named]


def _make_source(fields: dict[str, Any]) -> Source:
    try:
        return Source.model_validate(fields)
    except ValidationError as error:
        raise UsageError(error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")) from error


def _as_spec_path(name: str, base: Path | None) -> str:
    """Return a path relative to ``base``, the folder of the specification; absolute if ``base`` is None."""
    if url_scheme(name):
        return name
    place = Path(name).absolute()
    return (place if base is None else Path(os.path.relpath(place, base))).as_posix()


def _make_document(source: dict[str, Any], chosen: ChosenRoles, proposed: Proposal, *, unnamed: bool) -> str:
    """Return the text of a specification, as TOML.

    Args:
        source: The keys of ``[source]``.
        chosen: The roles of the columns.
        proposed: The parameters of the mechanism.
        unnamed: Whether nothing names the population; a comment then asks for its name.
    """
    document = tomlkit.document()
    for line in ("Proposed by privsql init.", *chosen.remarks, *proposed.remarks):
        document.add(tomlkit.comment(line))
    if place := _describe_source(source, chosen, POPULATION if unnamed else None):
        document["source"] = place
    document["columns"] = _without_columns(chosen.columns, proposed.left_out)
    document["mechanism"] = proposed.parameters
    return tomlkit.dumps(document)


def _describe_source(source: dict[str, Any], chosen: ChosenRoles, comment: str | None = None) -> Table:
    """Return the section ``[source]`` of a specification. If records name persons, it asks for one record of each.

    Args:
        source: The keys that say where the records are and how they are read.
        chosen: The proposed roles; the columns of ids and persons belong into this section.
        comment: A comment for the section; None for none.
    """
    section = tomlkit.table()
    read_as = source.pop("options", None)
    section.update({**source, **({"id": chosen.id} if chosen.id else {})})
    if chosen.person is not None:
        section.update({"person": chosen.person, "persons": "one"})
        section.add(
            tomlkit.comment('or persons = "some", and in [mechanism] max_records: as many of each share epsilon')
        )
    if section and comment is not None:
        section.add(tomlkit.comment(comment))
    if read_as is not None:  # after the comments, which would become part of this table
        section["options"] = read_as
    return section


def _without_columns(columns: dict[str, Any], left_out: Collection[str]) -> dict[str, Any]:
    """Return the keys of ``[columns]`` without the names in ``left_out``; a key that has no name left is dropped."""
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
