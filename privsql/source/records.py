"""Prepare the records that a specification asks for, and name their source where releases are written down."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from privsql.engine import files
from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import (
    DIALECT,
    Field,
    Holes,
    Roles,
    alias_as,
    canonical_value,
    column,
    comparable_text,
    fill,
    infer_type,
    is_null,
    temp_table,
)
from privsql.errors import EngineError, UsageError
from privsql.keyed_random import system_key
from privsql.mechanisms.contract import BudgetComposition, CategoricalShape, ItemSetShape, TableShape
from privsql.model.packing import SECRET, keyed_digest, place_hashes, scatter_bits, secret_word
from privsql.model.parameters import Universe
from privsql.model.records import History, Persons
from privsql.model.records import create_universe as records_listed
from privsql.source import table
from privsql.source.profile import refuse_uncategorical
from privsql.source.spec import missing_column_error
from privsql.source.table import AS_TEXT, PersonChoice, prepare_table, read_as
from privsql.source.targets import MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from privsql.engine.database import FindTypes, Relations, Warehouse
    from privsql.keyed_random import Key
    from privsql.model.parameters import Order
    from privsql.model.records import HashedRecords, Records
    from privsql.source.places import Source
    from privsql.source.spec import Columns, Spec
    from privsql.source.table import TableRecords
    from privsql.source.targets import Target

# Sets -----------------------------------------------------------------------------------------------------------------
# Prepare item sets: mount the source, apply the NULL policy, list the universe, count equal sets.


@dataclass(frozen=True)
class SetRecords:
    """Item sets, mounted and counted.

    Relations ``universe``(code, item) and ``baskets``(basket, items, records): the different sets, in canonical order;
    once sorted ``contents``(basket, code) as well. How many records there are is private.
    """

    db: Warehouse
    roles: Roles
    labels: tuple[str, ...]  # text of the items, in the order of the universe
    source_records: int
    suppressed: int
    persons: Persons | None = None
    known_by: Mapping[str, exp.Expr] = field(default_factory=dict)
    history: History = field(default_factory=History)
    _built_relations: set[str] = field(default_factory=set)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Return the number of records with every item."""
        holes: Holes = {
            "baskets": temp_table("baskets"),
            "apart": temp_table("apart"),
            "universe": temp_table("universe"),
        }
        return tuple(int(row[0]) for row in self.db.rows(fill("sets/counts", holes)))

    @property
    def records(self) -> int:
        """Return the number of published records, with those without items."""
        return self.source_records - self.suppressed

    @property
    def order(self) -> Order:
        """Return ``stream``, since no single record is assigned."""
        return "stream"

    def bind_key(self, key: Key) -> Key:
        """Return the key: noise is fresh, whatever the records are."""
        return key

    @property
    def packed(self) -> None:
        """Return None: sets are no integers."""
        return

    def find_packed(self, value: exp.Expr) -> None:
        """Return None: sets are no integers."""

    def sort_records(self) -> None:
        """Make ``contents``: every set, item by item."""
        if "contents" in self._built_relations:
            return
        holes: Holes = {"apart": temp_table("apart"), "universe": temp_table("universe")}
        self.db.create_table("contents", fill("sets/contents", holes), title="Sorting the sets")
        self._built_relations.add("contents")

    def coded_records(self, *, ordered: bool) -> exp.Query:  # noqa: ARG002
        """Sets have no value each; ``TypeError``."""
        raise TypeError("sets are not records with a value each")

    def query_names(self, *, follow: bool, values: bool) -> exp.Query:  # noqa: ARG002 (records of any shape are asked)
        """Return the names of all records and persons."""
        nobody = exp.cast(exp.null(), "VARCHAR")
        names = {key: self.known_by.get(key, nobody) for key in ("id", "person")}
        return fill("ledger/names", {"source": temp_table("source"), "keep": exp.true(), **names})

    def hash_records(self, key: Key, columns: Sequence[str] | None = None) -> Iterator[HashedRecords] | None:
        """Yield the hashes of the different sets; sets are sets, whatever columns are called, and have no others."""
        if columns is not None:
            return None
        self.db.register_arrow(SECRET, secret_word(key))
        text = keyed_digest(self.db, exp.cast(column("items", "b"), "VARCHAR"))
        sets = self.db.arrow(fill("ledger/sets", {"baskets": temp_table("baskets"), "hash": text}))
        self.db.drop(SECRET)
        hashes = sets["hash"].to_numpy().astype(np.uint64)
        return iter([(scatter_bits(place_hashes(hashes, 0)), sets["records"].to_numpy().astype(np.int64))])

    @property
    def has_ids(self) -> bool:
        """Return whether records are followed one by one; sets are not."""
        return False

    @property
    def keep_predicate(self) -> exp.Expr:
        """Return every row of relation ``source``."""
        return exp.true()

    def values_of(self, columns: Sequence[str]) -> dict[str, tuple[exp.Expr, str]]:  # noqa: ARG002
        """Return no values, since a set is no single value."""
        return {}

    def drop_relations(self) -> None:
        """Forget the sets."""
        self.db.drop("contents", "apart", "baskets")
        self._built_relations.discard("contents")

    def expose_as(self, name: str) -> None:
        """Make the records' sets readable as ``name``, under the publisher's own column name."""
        renamed = alias_as(column("items"), self.roles.sensitive[0].name)
        records = fill("duckdb/records", {"baskets": temp_table("baskets")})
        self.db.publish_as(name, exp.select(renamed).from_(records.subquery("records")))


def prepare_sets(
    db: Warehouse,
    source: Source,
    columns_: Columns,
    universe: Universe,
    choice: PersonChoice | None = None,
    types: FindTypes | None = None,
) -> SetRecords:
    """Mount the source, apply the NULL policy, find the universe and count the sets; ``choice`` and ``types``: as of
    ``prepare_table``.

    Items outside the universe are dropped, as NULL is, and one that stands twice in a list counts once: no record is
    refused. Raises ``UsageError`` for unknown columns and types.
    """
    mounted = table.mount_persons(db, source, types)
    known = {fold_name(one.name): one for one in db.list_fields(mounted)}
    columns = [_resolve_column(known, name) for name in columns_.set_columns]
    kind = _item_type(columns[-1], is_list=columns_.items is not None)
    choice = choice or PersonChoice.from_key(system_key(), "")
    persons = Persons.choose(choice.limit, choice.reference) if source.person is not None else None
    if persons is not None:
        published = [(column(columns[0].name), columns[0].type)]
        table.reduce_persons(db, source, mounted, published, exp.true(), choice)
    records, suppressed = _make_baskets(db, columns_, columns, kind)
    occurring = fill("duckdb/items", {"baskets": temp_table("baskets")})
    labels = records_listed(db, universe, kind, occurring)
    db.create_table("apart", fill("duckdb/apart", {"baskets": temp_table("baskets")}))
    roles = Roles((), (Field(columns[-1].name, f"{kind}[]"),))
    return SetRecords(db, roles, labels, records, suppressed, persons=persons)


def _resolve_column(known: dict[str, Field], name: str) -> Field:
    if fold_name(name) not in known:
        raise missing_column_error(name, (one.name for one in known.values()))
    return known[fold_name(name)]


def _item_type(column_: Field, *, is_list: bool) -> str:
    """Return the type of an item as it is published; an ENUM would carry the names of items that do not occur."""
    kind = column_.type.removesuffix("[]") if is_list else column_.type
    if is_list and not column_.type.endswith("[]"):
        raise UsageError(f"column {column_.name!r} is {kind}, not a list; name columns record and item instead")
    if kind.split("(")[0] in AS_TEXT:
        return "VARCHAR"
    if not Field(column_.name, kind).is_scalar:
        remedy = Field(column_.name, kind).suggest_cast() if not is_list else "cast it in source.query"
        raise UsageError(f"column {column_.name!r} holds {kind}, which can't be published; {remedy}")
    return kind


def _make_baskets(db: Warehouse, spec_columns: Columns, columns: Sequence[Field], kind: str) -> tuple[int, int]:
    """Make ``baskets``; records of the source, and those left out."""
    if spec_columns.items is not None:
        source: exp.Table = temp_table("source")
        items: exp.Expr = column(columns[0].name)
    else:
        holes: Holes = {
            "source": temp_table("source"),
            "record": column(columns[0].name),
            "item": column(columns[1].name),
        }
        db.create_table("gathered", fill("duckdb/gathered", holes), title="Gathering the items of each record")
        source, items = temp_table("gathered"), column("items")
    items = exp.cast(items, exp.DataType.build(f"{kind}[]", dialect=DIALECT))
    suppress = exp.true() if "suppress" in {spec_columns.null_policy(one.name) for one in columns} else exp.false()
    marked = fill("duckdb/marked", {"source": source, "items": items, "suppress": suppress})
    db.create_table("marked", marked, title="Reading the sets")
    records, missing = (int(n) for n in db.rows(fill("sets/missing", {"marked": temp_table("marked")}))[0])
    db.create_table("baskets", fill("duckdb/baskets", {"marked": temp_table("marked")}), title="Counting equal sets")
    db.drop("marked", "gathered")
    return records, missing


# Names ----------------------------------------------------------------------------------------------------------------
# The names of a source in the ledger, and whether two names mean the same source.

WITHIN = ":"  # between a database and its table
PYTHON = f"python{WITHIN}"  # before the columns of a table in memory
SHOWN_CHARACTERS = 120  # characters of a name in a message


def known_as(source: Source) -> tuple[str, ...]:
    """Return the name that the publisher gives a source, or its file with each of the tables that are read from it.

    A file, or a query that can't be taken apart, is the whole file. A pattern is the files that it meets now, an
    address what of it is no secret, and a table in Python its columns.
    """
    if source.name is not None:
        return (source.name,)
    if source.files:
        return _list_places(source.files)
    if source.frame is not None:
        return (f"{PYTHON}{source.frame.known_as}",)
    path = os.path.realpath(source.path)
    if source.opened is not None and source.opened.file is None:
        path = MEMORY
    elif source.spark is not None:
        path = f"{source.kind}{WITHIN}{(source.spark.remote or '').partition('/;')[0]}"
    elif source.external_relation is not None:
        path = source.kind  # its address may hold secrets
    return tuple(sorted({f"{path}{WITHIN}{table}" for table in _list_tables(source)})) or (path,)


def join_names(names: Iterable[str]) -> str:
    """Join the names of a source for a message; a table in Python by as many columns as fit into a line.

    >>> len(join_names([f"python:{'wide,' * 100}"]))
    122
    """
    return ", ".join(name if len(name) <= SHOWN_CHARACTERS else f"{name[:SHOWN_CHARACTERS]}.." for name in names)


def is_same_source(names: Iterable[str], others: Iterable[str]) -> bool:
    """Return whether two sources have a table in common: a file holds all of its tables, a folder all of its files.

    A table in Python is all that is known of one; if its columns are among those of another it may be a part of it.

    >>> is_same_source(["python:age,ill"], ["python:age,ill,zip"])
    True
    >>> is_same_source(["python:age,ill"], ["python:age,zip"])
    False
    """
    return any(
        one == other or _contains_source(one, other) or _contains_source(other, one)
        for one in names
        for other in others
    )


def overlaps_source(source: Source, target: Target) -> bool:
    """Return whether a release would be among the files of its source, or replace one of them."""
    if source.external_relation is not None or source.frame is not None or target.schema is not None:
        return False  # a schema replaces nothing but a release, whatever else its file holds
    places, place = known_as(source.model_copy(update={"name": None})), os.path.realpath(target.file)
    if source.database is not None:
        return os.path.realpath(source.database) == place
    return any(
        one == place or _contains_source(place, one) or (_contains_source(one, place) and not target.file.suffix)
        for one in places
    )


def _contains_source(one: str, other: str) -> bool:
    if one.startswith(PYTHON) and other.startswith(PYTHON):
        ours, theirs = ({fold_name(part) for part in name.removeprefix(PYTHON).split(",")} for name in (one, other))
        return theirs <= ours
    return other.startswith(one + WITHIN) or (Path(one).is_absolute() and other.startswith(one + os.sep))


def _list_places(names: Sequence[str]) -> tuple[str, ...]:
    """Return every file by its place; a folder by its own."""
    places: set[str] = set()
    for name in names:
        if files.url_scheme(name):
            places.add(files.redact_secrets(name))
            continue
        try:
            met = [Path(name)] if Path(name).is_dir() else files.find_files([name])
        except EngineError:  # said where it is read
            met = [Path(name)]
        places.update(map(os.path.realpath, met))
    return tuple(sorted(places))


def _list_tables(source: Source) -> list[str]:
    """Return the tables that are read of a database, as the engine compares names, without default schemas."""
    import sqlglot  # noqa: PLC0415 (who only reads a specification does not wait for it)
    from sqlglot import exp  # noqa: PLC0415
    from sqlglot.errors import SqlglotError  # noqa: PLC0415

    traits = source.traits
    dialect = traits.dialect
    try:
        if source.relation is not None:
            return [_table_name(exp.to_table(source.relation, dialect=dialect), traits.own_schema)]
        query = sqlglot.parse_one(source.origin.query or "", dialect=dialect)
    except SqlglotError:
        return []
    ctes = {fold_name(one.alias) for one in query.find_all(exp.CTE)}
    return [
        _table_name(one, traits.own_schema)
        for one in query.find_all(exp.Table)
        if one.name and not (fold_name(one.name) in ctes and not one.db)
    ]


def _table_name(table: exp.Table, own_schema: str) -> str:
    schema = fold_name(table.db)
    return fold_name(table.name) if schema in ("", own_schema) else f"{schema}.{fold_name(table.name)}"


# Naming ---------------------------------------------------------------------------------------------------------------
# Names by which the ledger recognises records and persons: ids, and those of persons, as text.


def known_by(db: Relations, source: Source) -> dict[str, exp.Expr]:
    """Return expressions over relation ``source`` that name a record (``id``) and its person (``person``).

    NULL stays NULL. ``UsageError`` for columns that the source has not.
    """
    available = {fold_name(field.name): field for field in db.list_fields(temp_table("source"))}
    texts: dict[str, exp.Expr] = {}
    for key, name in (("id", source.id), ("person", source.person)):
        if name is None:
            continue
        field = available.get(fold_name(name))
        if field is None:
            raise UsageError(f"source.{key}: {missing_column_error(name, (one.name for one in available.values()))}")
        kind = read_as(field.type)
        text = comparable_text(canonical_value(column(field.name), kind), kind)
        texts[key] = exp.Case().when(exp.not_(is_null(column(field.name))), text)
    return texts


def require_ids(db: Relations, source: Source, name: exp.Expr, keep: exp.Expr) -> None:
    """Raise ``UsageError`` unless every record that is kept has an id of its own."""
    nulls, twice = db.rows(fill("ledger/unnamed", {"source": temp_table("source"), "id": name, "keep": keep}))[0]
    if nulls or twice:
        wrong = f"is NULL in {nulls} records" if nulls else f"has {twice} values that stand more than once"
        raise UsageError(f"source.id: column {source.id!r} {wrong}; the ledger needs a unique id for every record")


# Records --------------------------------------------------------------------------------------------------------------
# Prepare the records of a specification for publication, of any shape.


def prepare_records(
    db: Warehouse, spec: Spec, *, for_ledger: bool = False, choice: PersonChoice | None = None
) -> Records:
    """Mount and count the source; ``for_ledger``: with names by which a ledger knows records and persons.

    ``choice``: by which one record of each person is taken (None: by a fresh key).
    Raises ``UsageError`` for columns that are unknown or can't be published, and NULL where it is refused;
    ``EngineError`` for files that can't be read.
    """
    mechanism = spec.implementation
    if spec.source.chooses_records:
        choice = replace(choice or PersonChoice.from_key(system_key(), ""), limit=spec.record_limit)
    if isinstance(mechanism.shape, ItemSetShape):
        universe = mechanism.shape.universe(spec.mechanism)
        sets = prepare_sets(db, spec.source, spec.columns, universe, choice, determine_types(spec))
        return replace(sets, known_by=known_by(db, spec.source)) if for_ledger else sets
    shape = mechanism.shape
    listed = shape.listed(spec.mechanism) if isinstance(shape, TableShape) and shape.listed is not None else None
    counted = prepare_table(db, spec.source, spec.columns, choice, determine_types(spec), listed)
    records = replace(counted, order=spec.order)
    if isinstance(mechanism.shape, TableShape):
        size = len(records.counts), records.records
        refuse_uncategorical(mechanism, _count_values(records), size, categorical=spec.columns.categorical)
    if not for_ledger:
        return records
    names = known_by(db, spec.source)
    has_ids = "id" in names and not isinstance(mechanism.composition, BudgetComposition)
    if has_ids:
        require_ids(db, spec.source, names["id"], records.keep_predicate)
    return replace(records, known_by=names, has_ids=has_ids and db.keeps_order)  # else they are names and no more


def determine_types(spec: Spec) -> FindTypes | None:
    """How the types of a private release's columns, by folded name, follow from its specification; else None.

    In a file of texts, and in floats of which pandas makes whole numbers where one is missing, one record would decide.
    """
    mechanism = spec.implementation
    if not isinstance(mechanism.composition, BudgetComposition):
        return None
    domains: Mapping[str, Universe] = {}
    if isinstance(mechanism.shape, ItemSetShape) and spec.columns.item is not None:
        domains = {spec.columns.item: mechanism.shape.universe(spec.mechanism)}
    elif isinstance(mechanism.shape, CategoricalShape):
        known = {fold_name(name): domain for name, domain in mechanism.shape.domains(spec.mechanism).items()}
        domains = {name: known.get(fold_name(name), Universe(data=True)) for name in spec.columns.categories}
    elif isinstance(mechanism.shape, TableShape) and mechanism.shape.listed is not None:
        domains = {name: Universe(items=mechanism.shape.listed(spec.mechanism)[0]) for name in spec.columns.sensitive}
    return lambda db: {fold_name(name): _determine_type(db, domain) for name, domain in domains.items()}


def _determine_type(db: Relations, domain: Universe) -> str | None:
    """The type of the values that a domain lists; None where the records tell them."""
    if domain.listing is None:
        return domain.listed_type
    query, leaves = domain.listing
    try:
        db.create_from_sql("given", query)
    except UsageError as error:
        raise UsageError(f"the query of a domain is run before the records are read: {error}") from error
    fields = db.list_fields(temp_table("given"))
    kind = read_as(fields[0].type)
    if kind == "VARCHAR":
        rows = db.rows(
            exp.select(*(exp.cast(column(one.name), "VARCHAR") for one in fields)).from_(temp_table("given"))
        )
        inner = {row[1] for row in rows} if leaves and len(fields) > 1 else {None}
        kind = infer_type(row[0] for row in rows if row[0] is not None and row[0] not in inner)
    db.drop("given")
    return kind


def _count_values(records: TableRecords) -> dict[Field, int]:
    """Return how many different values each sensitive column has."""
    sensitive, keys = records.roles.sensitive, records.roles.sa_keys
    if len(sensitive) == 1:
        return {sensitive[0]: len(records.counts)}
    counted = [fill("core/profile", {"source": temp_table("domain"), "column": column(key)}) for key in keys]
    return {field: int(records.db.rows(one)[0][2]) for field, one in zip(sensitive, counted, strict=True)}
