"""Prepare the records that a specification asks for, and name their source where releases are written down."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine import files
from privsql.engine.files import fold
from privsql.engine.roles import Field, Roles, canonical, comparable
from privsql.engine.sqlfiles import DIALECT, Holes, column, fill, is_null, named, temp
from privsql.errors import EngineError, UsageError
from privsql.keyed_random import system_key
from privsql.mechanisms.contract import Budget, Sets, Table
from privsql.mechanisms.registry import of
from privsql.model.records import History, Persons
from privsql.model.records import listed as records_listed
from privsql.source import table
from privsql.source.places import parted
from privsql.source.profile import refuse_uncategorical
from privsql.source.spec import missing
from privsql.source.table import AS_TEXT, Choice, prepare, read_as

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from privsql.engine.database import Relations, Warehouse
    from privsql.keyed_random import Key
    from privsql.model.parameters import Order, Universe
    from privsql.model.records import Records
    from privsql.source.places import Source
    from privsql.source.spec import Columns, Spec
    from privsql.source.table import TableRecords

# Sets -----------------------------------------------------------------------------------------------------------------
# From a publisher's lists of items to counts of equal sets: mount, NULL policy, universe.


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
    _made: set[str] = field(default_factory=set)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Records with every item."""
        holes: Holes = {"baskets": temp("baskets"), "apart": temp("apart"), "universe": temp("universe")}
        return tuple(int(row[0]) for row in self.db.rows(fill("sets/counts", holes)))

    @property
    def records(self) -> int:
        """Records that are published; those without items among them."""
        return self.source_records - self.suppressed

    @property
    def order(self) -> Order:
        """Nothing is told of single records."""
        return "stream"

    def bound(self, key: Key) -> Key:
        """The key: noise is fresh, whatever the records are."""
        return key

    def sort(self) -> None:
        """Make ``contents``: every set, item by item."""
        if "contents" in self._made:
            return
        holes: Holes = {"apart": temp("apart"), "universe": temp("universe")}
        self.db.make("contents", fill("sets/contents", holes), title="Sorting the sets")
        self._made.add("contents")

    def coded(self, *, ordered: bool) -> exp.Query:  # noqa: ARG002
        """Sets have no value each; ``TypeError``."""
        raise TypeError("sets are not records with a value each")

    def traces(self, *, values: bool) -> exp.Query:  # noqa: ARG002 (records of any shape are asked)
        """What the sets are known by in other releases; beside them stand the names of all records."""
        text = exp.cast(column("items", "b"), "VARCHAR")
        sets = fill("ledger/sets", {"baskets": temp("baskets"), "trace": self.db.digest([text])})
        if not self.known_by:
            return sets
        nobody = exp.cast(exp.null(), "VARCHAR")
        names = {key: self.known_by.get(key, nobody) for key in ("id", "person")}
        return exp.union(sets, fill("ledger/names", {"source": temp("source"), **names}), distinct=False)

    @property
    def has_ids(self) -> bool:
        """Whether records are followed one by one; sets are not."""
        return False

    @property
    def keep(self) -> exp.Expr:
        """Every row of relation ``source``."""
        return exp.true()

    def seen_as(self, columns: Sequence[str]) -> exp.Query | None:  # noqa: ARG002
        """Sets are sets, whatever the columns are called."""
        return None

    def values_of(self, columns: Sequence[str]) -> dict[str, tuple[exp.Expr, str]]:  # noqa: ARG002
        """No column of its own for a value."""
        return {}

    def done(self) -> None:
        """Forget the sets."""
        self.db.drop("contents", "apart", "baskets")
        self._made.discard("contents")

    def named(self, name: str) -> None:
        """Make the records' sets readable as ``name``, under the publisher's own column name."""
        own = named(column("items"), self.roles.sensitive[0].name)
        records = fill("duckdb/records", {"baskets": temp("baskets")})
        self.db.publish_as(name, exp.select(own).from_(records.subquery("records")))


def prepare_sets(
    db: Warehouse, source: Source, columns_: Columns, universe: Universe, choice: Choice | None = None
) -> SetRecords:
    """Mount the source, apply the NULL policy, find the universe and count the sets; ``choice``: as of ``prepare``.

    Items outside the universe are dropped, as NULL is, and one that stands twice in a list counts once: no record is
    refused. Raises ``UsageError`` for unknown columns and types.
    """
    given = table.mount_persons(db, source)
    known = {fold(one.name): one for one in db.fields(given)}
    columns = [_resolved(known, name) for name in columns_.sets]
    kind = _kind(columns[-1], is_list=columns_.items is not None)
    choice = choice or Choice.by(system_key(), "")
    told = Persons(rule="one", choice=choice.reference) if source.person is not None else None
    if told is not None:
        table.reduce_persons(db, source, given, [(column(columns[0].name), columns[0].type)], exp.true(), choice)
    records, suppressed = _baskets(db, columns_, columns, kind)
    occurring = fill("duckdb/items", {"baskets": temp("baskets")})
    labels = records_listed(db, universe, kind, occurring)
    db.make("apart", fill("duckdb/apart", {"baskets": temp("baskets")}))
    roles = Roles((), (Field(columns[-1].name, f"{kind}[]"),))
    return SetRecords(db, roles, labels, records, suppressed, persons=told)


def _resolved(known: dict[str, Field], name: str) -> Field:
    if fold(name) not in known:
        raise missing(name, (one.name for one in known.values()))
    return known[fold(name)]


def _kind(column_: Field, *, is_list: bool) -> str:
    """The type of an item as it is published; an ENUM would carry the names of items that do not occur."""
    kind = column_.type.removesuffix("[]") if is_list else column_.type
    if is_list and not column_.type.endswith("[]"):
        raise UsageError(f"column {column_.name!r} is {kind}, not a list; name columns record and item instead")
    if kind.split("(")[0] in AS_TEXT:
        return "VARCHAR"
    if not Field(column_.name, kind).is_scalar:
        raise UsageError(f"column {column_.name!r} holds {kind}, which can't be published; cast it in source.query")
    return kind


def _baskets(db: Warehouse, asked: Columns, columns: Sequence[Field], kind: str) -> tuple[int, int]:
    """Make ``baskets``; records of the source, and those left out."""
    if asked.items is not None:
        source: exp.Table = temp("source")
        items: exp.Expr = column(columns[0].name)
    else:
        holes: Holes = {"source": temp("source"), "record": column(columns[0].name), "item": column(columns[1].name)}
        db.make("gathered", fill("duckdb/gathered", holes), title="Gathering the items of each record")
        source, items = temp("gathered"), column("items")
    items = exp.cast(items, exp.DataType.build(f"{kind}[]", dialect=DIALECT))
    suppress = exp.true() if "suppress" in {asked.policy(one.name) for one in columns} else exp.false()
    marked = fill("duckdb/marked", {"source": source, "items": items, "suppress": suppress})
    db.make("marked", marked, title="Reading the sets")
    records, missing = (int(n) for n in db.rows(fill("sets/missing", {"marked": temp("marked")}))[0])
    db.make("baskets", fill("duckdb/baskets", {"marked": temp("marked")}), title="Counting equal sets")
    db.drop("marked", "gathered")
    return records, missing


# Names ----------------------------------------------------------------------------------------------------------------
# What a source is called where its releases are written down, and when two names mean the same source.

WITHIN = ":"  # between a database and its table
PYTHON = f"python{WITHIN}"  # before the columns of a table in memory
SHOWN_CHARACTERS = 120  # characters of a name in a message
OWN_SCHEMA = {"duckdb": "main", "spark": "default", "postgres": "public"}  # of tables that name none
DIALECTS = {"spark": "spark", "postgres": "postgres", "mysql": "duckdb", "ducklake": "duckdb", "duckdb": "duckdb"}


def known_as(source: Source) -> tuple[str, ...]:
    """The name that the publisher gives a source, or its file with each of the tables that are read from it.

    A file, or a query that can't be taken apart, is the whole file. A pattern is the files that it meets now, an
    address what of it is no secret, and a table in Python its columns.
    """
    if source.name is not None:
        return (source.name,)
    if source.files:
        return _files(source.files)
    if source.frame is not None:
        return (f"{PYTHON}{source.frame.known_as}",)
    path = os.path.realpath(source.path)
    if source.spark is not None:
        path = f"spark{WITHIN}{(source.spark.remote or '').partition('/;')[0]}"
    elif source.elsewhere is not None:
        path = source.kind  # its address may hold secrets
    return tuple(sorted({f"{path}{WITHIN}{table}" for table in _tables(source)})) or (path,)


def listed(names: Iterable[str]) -> str:
    """What a source is called, for a message: a table in Python by as many of its columns as a line takes.

    >>> len(listed([f"python:{'wide,' * 100}"]))
    122
    """
    return ", ".join(name if len(name) <= SHOWN_CHARACTERS else f"{name[:SHOWN_CHARACTERS]}.." for name in names)


def same_source(names: Iterable[str], others: Iterable[str]) -> bool:
    """Whether two sources have a table in common: a file holds all of its tables, a folder all of its files.

    A table in Python is all that is known of one; if its columns are among those of another it may be a part of it.

    >>> same_source(["python:age,ill"], ["python:age,ill,zip"]), same_source(["python:age,ill"], ["python:age,zip"])
    (True, False)
    """
    return any(one == other or _holds(one, other) or _holds(other, one) for one in names for other in others)


def overlaps(source: Source, target: Path) -> bool:
    """Whether a release would be among the files of its source, or replace one of them."""
    if source.elsewhere is not None or source.frame is not None or parted(target)[1] is not None:
        return False  # a schema replaces nothing but a release, whatever else its file holds
    places, place = known_as(source.model_copy(update={"name": None})), os.path.realpath(target)
    if source.database is not None:
        return os.path.realpath(source.database) == place
    return any(one == place or _holds(place, one) or (_holds(one, place) and not target.suffix) for one in places)


def _holds(one: str, other: str) -> bool:
    if one.startswith(PYTHON) and other.startswith(PYTHON):
        ours, theirs = ({fold(part) for part in name.removeprefix(PYTHON).split(",")} for name in (one, other))
        return theirs <= ours
    return other.startswith(one + WITHIN) or (Path(one).is_absolute() and other.startswith(one + os.sep))


def _files(given: Sequence[str]) -> tuple[str, ...]:
    """Every file by its place; a folder by its own."""
    places: set[str] = set()
    for name in given:
        if files.scheme(name):
            places.add(files.shown(name))
            continue
        try:
            met = [Path(name)] if Path(name).is_dir() else files.found([name])
        except EngineError:  # said where it is read
            met = [Path(name)]
        places.update(map(os.path.realpath, met))
    return tuple(sorted(places))


def _tables(source: Source) -> list[str]:
    """The tables of a database that are read: names as the engine compares them, without a schema that need not be."""
    import sqlglot  # noqa: PLC0415 (who only reads a specification does not wait for it)
    from sqlglot import exp  # noqa: PLC0415
    from sqlglot.errors import SqlglotError  # noqa: PLC0415

    dialect = DIALECTS[source.kind]
    try:
        if source.relation is not None:
            return [_name(exp.to_table(source.relation, dialect=dialect), dialect)]
        query = sqlglot.parse_one(source.origin.query or "", dialect=dialect)
    except SqlglotError:
        return []
    own = {fold(one.alias) for one in query.find_all(exp.CTE)}
    return [
        _name(one, dialect)
        for one in query.find_all(exp.Table)
        if one.name and not (fold(one.name) in own and not one.db)
    ]


def _name(table: exp.Table, dialect: str) -> str:
    schema = fold(table.db)
    return fold(table.name) if schema in ("", OWN_SCHEMA[dialect]) else f"{schema}.{fold(table.name)}"


# Naming ---------------------------------------------------------------------------------------------------------------
# Names by which the ledger knows records and persons again: ids, and those of persons, as text.


def known_by(db: Relations, source: Source) -> dict[str, exp.Expr]:
    """The texts that name a record (``id``) and its person (``person``), as expressions over relation ``source``.

    NULL stays NULL. ``UsageError`` for columns that the source has not.
    """
    available = {fold(field.name): field for field in db.fields(temp("source"))}
    found: dict[str, exp.Expr] = {}
    for key, name in (("id", source.id), ("person", source.person)):
        if name is None:
            continue
        field = available.get(fold(name))
        if field is None:
            raise UsageError(f"source.{key}: {missing(name, (one.name for one in available.values()))}")
        kind = read_as(field.type)
        text = comparable(canonical(column(field.name), kind), kind)
        found[key] = exp.Case().when(exp.not_(is_null(column(field.name))), text)
    return found


def require_ids(db: Relations, source: Source, name: exp.Expr, keep: exp.Expr) -> None:
    """``UsageError`` unless every record that is kept has an id of its own."""
    nulls, twice = db.rows(fill("ledger/unnamed", {"source": temp("source"), "id": name, "keep": keep}))[0]
    if nulls or twice:
        wrong = f"is NULL in {nulls} records" if nulls else f"has {twice} values that stand more than once"
        raise UsageError(f"source.id: column {source.id!r} {wrong}; a ledger needs one name for every record")


# Records --------------------------------------------------------------------------------------------------------------
# From what a publisher asks for to records ready to be published, whatever their shape is.


def prepared(db: Warehouse, spec: Spec, *, for_ledger: bool = False, choice: Choice | None = None) -> Records:
    """The source, mounted and counted; ``for_ledger``: with the names by which a ledger knows records and persons.

    ``choice``: by which one record of each person is taken (None: by a fresh key).
    Raises ``UsageError`` for columns that are unknown or can't be published, and NULL where it is refused;
    ``EngineError`` for files that can't be read.
    """
    mechanism = of(spec.mechanism.kind)
    if isinstance(mechanism.shape, Sets):
        sets = prepare_sets(db, spec.source, spec.columns, mechanism.shape.universe(spec.mechanism), choice)
        return replace(sets, known_by=known_by(db, spec.source)) if for_ledger else sets
    found = replace(prepare(db, spec.source, spec.columns, choice), order=spec.order)
    if isinstance(mechanism.shape, Table):
        size = len(found.counts), found.records
        refuse_uncategorical(mechanism, _count_values(found), size, categorical=spec.columns.categorical)
    if not for_ledger:
        return found
    names = known_by(db, spec.source)
    has_ids = "id" in names and not isinstance(mechanism.composition, Budget)
    if has_ids:
        require_ids(db, spec.source, names["id"], found.keep)
    return replace(found, known_by=names, has_ids=has_ids)


def _count_values(records: TableRecords) -> dict[Field, int]:
    """Return how many different values each sensitive column has."""
    sensitive, keys = records.roles.sensitive, records.roles.sa_keys
    if len(sensitive) == 1:
        return {sensitive[0]: len(records.counts)}
    counted = [fill("core/profile", {"source": temp("domain"), "column": column(key)}) for key in keys]
    return {field: int(records.db.rows(one)[0][2]) for field, one in zip(sensitive, counted, strict=True)}
