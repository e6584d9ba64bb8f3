"""Prepare the records that a specification asks for: mount the source, find the columns, choose records, and count."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from sqlglot import exp

from privsql.engine.files import find_files, fold_name, label_value, partition_values, url_scheme
from privsql.engine.sqlfiles import (
    DIALECT,
    Field,
    Holes,
    Roles,
    alias_as,
    all_of,
    any_of,
    canonical_value,
    column,
    fill,
    infer_type,
    is_null,
    temp_table,
)
from privsql.errors import UsageError
from privsql.keyed_random import system_key
from privsql.mechanisms.base import BudgetComposition, CategoricalShape, ItemSetShape, TableShape
from privsql.model.hashing import SECRET, keyed_digest, place_hashes, scatter_bits, secret_word, source_changed_error
from privsql.model.records import History, Persons
from privsql.model.universes import Universe, create_universe
from privsql.source.table import (
    AS_TEXT,
    Coarse,
    PersonChoice,
    Reading,
    TableRecords,
    coarsen_column,
    count_persons,
    find_column,
    index_names,
    is_publishable,
    labels_of,
    mount_persons,
    name_people,
    name_records,
    query_source_names,
    read_as,
    read_listed,
    reduce_persons,
)
from privsql.source.texts import refuse_misread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from privsql.engine.database import FindTypes, Relations, Warehouse
    from privsql.keyed_random import Key
    from privsql.model.parameters import Order
    from privsql.model.records import HashedRecords, Records
    from privsql.model.universes import ListedValues
    from privsql.source.places import Source
    from privsql.source.spec import Columns, Spec

# Tables ---------------------------------------------------------------------------------------------------------------
# From the publisher's source to counted records: roles, NULL policy, persons, bins, domain.


def prepare_table(
    db: Warehouse,
    source: Source,
    columns: Columns,
    choice: PersonChoice | None = None,
    types: FindTypes | None = None,
    listed: ListedValues | None = None,
) -> TableRecords:
    """Make a source readable in a session, leave out records because of NULL, and count the sensitive values.

    Args:
        db: The session that reads the source.
        source: The source.
        columns: The roles of its columns.
        choice: How the published records of each person are chosen; None chooses by a fresh key.
        types: A function that returns the column types that the specification determines. A release that spends a
            privacy budget needs it. None infers all types from the records.
        listed: The public list of sensitive values; None if the records determine them.

    Raises:
        UsageError: A column, or NULL in it, can't be published.
        EngineError: A file can't be read.
    """
    mounted = mount_persons(db, source, types)
    calendar = next((name for name, bins in columns.bins.items() if bins.unit or bins.prefix or bins.rounds), None)
    if calendar is not None and source.traits.counts:  # engines compute months, prefixes and floor differently
        raise UsageError(
            f"columns.bins: column {calendar!r}: {columns.bins[calendar]} need DuckDB, and the source lies in "
            f"{source.kind}; make them in its query"
        )
    _refuse_unread(db, source, columns.names, mounted, types)
    roles, sources, coarse = _resolve_roles(db, columns, mounted, listed)
    suppressed = [name for name in sources if columns.null_policy(name) == "suppress"]
    keep = all_of([exp.not_(is_null(sources[name].copy())) for name in suppressed])
    qi, sa = (
        [alias_as(sources[one.name], key) for one, key in zip(fields, keys, strict=True)]
        for fields, keys in ((roles.quasi_identifiers, roles.qi_keys), (roles.sensitive, roles.sa_keys))
    )
    reading = Reading(qi, sa, keep)
    choice = choice or PersonChoice.from_key(system_key(), "")
    if columns.categories and source.person is not None:  # a private release may not count or refuse persons
        persons: Persons | None = Persons.choose(choice.limit, choice.reference, source.order)
    else:
        persons = count_persons(db, source, mounted, keep, choice)
    if persons is not None and persons.taken is not None:
        known = roles.quasi_identifiers if source.persons == "first" else roles.columns
        published = [(sources[one.name], one.type) for one in known]
        names = {one.name for one in known}
        by_known = all_of([exp.not_(is_null(sources[name].copy())) for name in suppressed if name in names])
        reduce_persons(db, source, mounted, published, by_known, choice)
        name_people(db, source, reading, {"people": mounted, "chosen_people": temp_table("source")})
    elif persons is not None:
        name_people(db, source, reading, {"people": mounted})
    source_records, remaining = _count_records(db, columns, roles, keep)
    for one in (one for one in coarse if one.misfit is not None):
        outside = fill("core/matching", {"table": temp_table("source"), "filter": exp.and_(keep, one.misfit)})
        if misfits := int(db.rows(outside)[0][0]):
            named = exp.cast(column(one.name), "VARCHAR")
            first = exp.select(named).from_(temp_table("source")).where(exp.and_(keep, one.misfit)).limit(1)
            such = f" (such as {db.rows(first)[0][0]!r})" if types is None else ""
            raise UsageError(f"column {one.name!r}: {misfits:,} records{such} hold {one.why}")
    holes: Holes = {"source": temp_table("source"), "sa": reading.sa, "keep": keep}
    holes |= {"keys": roles.sa_columns(), "sa_order": roles.sa_columns()}
    db.create_table("domain", fill("core/domain", holes), title="Counting the sensitive values")
    labels = [exp.cast(item, "VARCHAR") for item in roles.sa_columns()]
    rows = db.rows(fill("core/domain_labels", {"domain": temp_table("domain"), "labels": labels}))
    if sum(int(row[-1]) for row in rows) != remaining:
        raise source_changed_error()
    return TableRecords(
        db,
        roles,
        tuple(label_value(row[:-1]) for row in rows),
        tuple(int(row[-1]) for row in rows),
        source_records,
        source_records - remaining,
        reading,
        persons=persons,
    )


def _resolve_roles(
    db: Warehouse, columns: Columns, mounted: exp.Table, listed: ListedValues | None
) -> tuple[Roles, dict[str, exp.Expr], list[Coarse]]:
    """Find the columns that a specification names in its source, and how each is read.

    Args:
        db: The session.
        columns: The section ``[columns]``.
        mounted: The table with the records of the source in the session.
        listed: The public list of sensitive values; None if there is none.

    Returns:
        The columns by role, spelled as in the source; the SQL expression that reads each column, by name; and the
        columns that are put into bins or groups, or have a public list of values.
    """
    available = index_names(db.list_fields(mounted))
    reading: dict[str, exp.Expr] = {}
    misfits: list[Coarse] = []

    def resolve(name: str) -> Field:
        field = find_column(available, name)
        if not is_publishable(field):
            raise UsageError(f"column {name!r} has type {field.type}, which can't be published; {field.suggest_cast()}")
        kind = read_as(field.type)
        reading[field.name] = canonical_value(column(field.name), kind)
        one, value = Field(field.name, kind), reading[field.name]
        coarse = coarsen_column(one, columns, value)
        if listed is not None and fold_name(name) in map(fold_name, columns.sensitive):
            coarse = Coarse(one.name, read_listed(one, value, listed))
        if coarse is not None:
            reading[field.name] = coarse.value
            misfits.append(coarse)
        return one

    quasi = tuple(resolve(name) for name in columns.quasi_identifiers)
    sensitive = tuple(resolve(name) for name in (*columns.sensitive, *columns.categories))
    types = {one.name: available[fold_name(one.name)].type for one in (*quasi, *sensitive)}
    coarse = {one.name for one in misfits}
    orders = {name: labels_of(kind) for name, kind in types.items() if kind.startswith("ENUM(") and name not in coarse}
    return Roles(quasi, sensitive, orders), reading, misfits


def _count_records(db: Warehouse, columns: Columns, roles: Roles, keep: exp.Expr) -> tuple[int, int]:
    """Count the records of the source, which is readable in the session as table ``source``.

    Returns:
        The number of all records, and the number of those that are not left out because of NULL.

    Raises:
        UsageError: A column that refuses NULL has one; the message names the column.
    """
    refused = [f.name for f in roles.columns if columns.null_policy(f.name) == "refuse"]
    missing = [is_null(column(name)) for name in refused]

    def counts(conditions: Sequence[exp.Expr]) -> tuple[int, int, int]:
        holes = {"source": temp_table("source"), "keep": keep, "refuse": exp.and_(keep, any_of(conditions))}
        records, remaining, bad = db.rows(fill("core/null_counts", holes))[0]
        return int(records), int(remaining), int(bad)

    records, remaining, bad = counts(missing)
    if bad:
        for name, condition in zip(refused, missing, strict=True):
            if of_column := counts([condition])[2]:
                raise UsageError(
                    f"column {name!r} is NULL in {of_column} records; "
                    f"set columns.nulls.{name} to 'suppress' (leave them out) or 'value' (NULL is a value of its own)"
                )
    return records, remaining


def _refuse_unread(
    db: Warehouse, source: Source, names: Sequence[str], mounted: exp.Table, types: FindTypes | None
) -> None:
    """Refuse columns of files that are probably not read as the publisher means them.

    Args:
        db: The session in which the source is readable.
        source: The source.
        names: The columns that are published.
        mounted: The table as which it is readable.
        types: A function that returns the column types that the specification determines. None infers all types from
            the records, whose values are then examined.

    Raises:
        UsageError: The guessed type of a column loses or hides values. Or a column is not in the files, but in the
            names of their folders, such as year=2024.
    """
    known = index_names(db.list_fields(mounted))
    missing = [name for name in names if fold_name(name) not in known]
    if missing and not source.hive_partitioning and source.kind in ("csv", "parquet"):
        files = [*source.files, *map(str, find_files([name for name in source.files if not url_scheme(name)]))]
        stated = {fold_name(key) for name in files for key in partition_values(name)}
        if (one := next((name for name in missing if fold_name(name) in stated), None)) is not None:
            raise UsageError(f"column {one!r} is stated by folders; say source.hive_partitioning = true")
    if types is None:
        refuse_misread(db, source, [*names, source.id, source.person, source.order])


# Sets -----------------------------------------------------------------------------------------------------------------
# Prepare item sets: mount the source, apply the NULL policy, list the universe, count equal sets.


@dataclass(frozen=True)
class SetRecords:
    """Records that are item sets, readable in a session and counted.

    The session has these temporary tables: ``universe`` (code, item) lists the items that may be published. ``baskets``
    (basket, items, records) lists the different sets in sorted order, and how many records have each.
    ``sort_records`` creates ``contents`` (basket, code) with a row for each item of each set. How many records there
    are may not be published.

    Attributes:
        db: The session.
        roles: The columns by role; the item column is the only one.
        labels: The texts of the items, in the order of the table ``universe``.
        source_records: The number of records in the source.
        suppressed: The number of records that are left out because of NULL.
        persons: What the release states about persons with several records; None if no column names persons.
        known_by: SQL expressions of a record's "id" and "person", for a ledger.
        history: What the ledger knows about earlier releases of the same people.
    """

    db: Warehouse
    roles: Roles
    labels: tuple[str, ...]
    source_records: int
    suppressed: int
    persons: Persons | None = None
    known_by: Mapping[str, exp.Expr] = field(default_factory=dict)
    history: History = field(default_factory=History)
    _built_relations: set[str] = field(default_factory=set)
    order: ClassVar[Order] = "stream"  # no record is assigned to a bucket
    packed: ClassVar[None] = None  # sets can't be packed into integers
    has_ids: ClassVar[bool] = False  # the ledger does not follow single records

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Return the number of records that contain each item, in the order of ``universe``."""
        holes: Holes = {name: temp_table(name) for name in ("baskets", "apart", "universe")}
        return tuple(int(row[0]) for row in self.db.rows(fill("sets/counts", holes)))

    @property
    def records(self) -> int:
        """Return the number of published records, including those without items."""
        return self.source_records - self.suppressed

    def bind_key(self, key: Key) -> Key:
        """Return the publisher's key unchanged.

        For other records, this method mixes hashes of the records into the key, so that one key makes independent
        random choices for several tables. Releases of item sets get fresh noise instead, so the key need not do that.
        """
        return key

    def sort_records(self) -> None:
        """Create the temporary table ``contents``, with a row for each item of each set."""
        if "contents" in self._built_relations:
            return
        holes: Holes = {"apart": temp_table("apart"), "universe": temp_table("universe")}
        self.db.create_table("contents", fill("sets/contents", holes), title="Sorting the sets")
        self._built_relations.add("contents")

    def coded_records(self, *, ordered: bool) -> exp.Query:
        """Raise ``TypeError``: the query lists records with a single sensitive value each, and item sets have none."""
        raise TypeError("sets are not records with a value each")

    def query_names(self, *, follow: bool, values: bool) -> exp.Query:
        """Return the query for the ids of all records and their persons, which a ledger stores as hashes.

        Both arguments are ignored, because a ledger does not follow item sets from release to release.
        """
        return query_source_names(self.known_by, exp.true())

    def hash_records(self, key: Key) -> Iterator[HashedRecords]:
        """Yield keyed hashes of the different sets, with the number of records that have each.

        A ledger compares them to find releases of the same records. They do not depend on the name of the column.
        """
        self.db.register_arrow(SECRET, secret_word(key))
        text = keyed_digest(self.db, exp.cast(column("items", "b"), "VARCHAR"))
        sets = self.db.arrow(fill("ledger/sets", {"baskets": temp_table("baskets"), "hash": text}))
        self.db.drop(SECRET)
        hashes = sets["hash"].to_numpy().astype(np.uint64)
        return iter([(scatter_bits(place_hashes(hashes, 0)), sets["records"].to_numpy().astype(np.int64))])

    @property
    def keep_predicate(self) -> exp.Expr:
        """Return the SQL condition TRUE, because every record is published."""
        return exp.true()

    @property
    def published_values(self) -> list[tuple[exp.Expr, str]]:
        """Return an empty list: no column of the source is published as it is, since a set is not a single value."""
        return []

    def drop_relations(self) -> None:
        """Free memory: drop the session's tables of the sets, once the mechanism has read them.

        The table ``universe`` of the items stays.
        """
        self.db.drop("contents", "apart", "baskets")
        self._built_relations.discard("contents")

    def expose_as(self, name: str) -> None:
        """Create a view ``name`` of the sets of all records, on which the true answers to queries are computed."""
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
    """Make a source of item sets readable, find the universe of items, and count the sets.

    The universe is the list of items that may be published. Other items and NULL are dropped, and an item that occurs
    twice in a list counts once. So no record is refused.

    Args:
        db: The session that reads the source.
        source: The source.
        columns_: The columns of the item sets.
        universe: The items that may be published.
        choice: How the published records of each person are chosen; None if all are published.
        types: A function that returns the column types that the specification determines. A release that spends a
            privacy budget needs it. None infers all types from the records.

    Raises:
        UsageError: A column is unknown, or its type can't be published.
    """
    mounted = mount_persons(db, source, types)
    _refuse_unread(db, source, columns_.set_columns, mounted, types)
    known = index_names(db.list_fields(mounted))
    columns = [find_column(known, name) for name in columns_.set_columns]
    kind = _item_type(columns[-1], is_list=columns_.items is not None)
    persons = Persons(rule="refuse") if source.person is not None else None
    if choice is not None:
        persons = Persons.choose(choice.limit, choice.reference, source.order)
        published = (column(columns[0].name), columns[0].type)
        reduce_persons(db, source, mounted, [published], exp.true(), choice)
    if columns_.items is not None:
        gathered, items = temp_table("source"), column(columns[0].name)
    else:
        record, item = (column(one.name) for one in columns)
        holes: Holes = {"source": temp_table("source"), "record": record, "item": item}
        db.create_table("gathered", fill("duckdb/gathered", holes), title="Gathering the items of each record")
        gathered, items = temp_table("gathered"), column("items")
    suppress = exp.true() if "suppress" in {columns_.null_policy(one.name) for one in columns} else exp.false()
    holes = {"source": gathered, "items": exp.cast(items, f"{kind}[]", dialect=DIALECT)}
    db.create_table("marked", fill("duckdb/marked", {**holes, "suppress": suppress}), title="Reading the sets")
    records, suppressed = (int(n) for n in db.rows(fill("sets/missing", {"marked": temp_table("marked")}))[0])
    db.create_table("baskets", fill("duckdb/baskets", {"marked": temp_table("marked")}), title="Counting equal sets")
    db.drop("marked", "gathered")
    occurring = fill("duckdb/items", {"baskets": temp_table("baskets")})
    labels = create_universe(db, universe, kind, occurring)
    db.create_table("apart", fill("duckdb/apart", {"baskets": temp_table("baskets")}))
    roles = Roles((), (Field(columns[-1].name, f"{kind}[]"),))
    return SetRecords(db, roles, labels, records, suppressed, persons=persons)


def _item_type(column_: Field, *, is_list: bool) -> str:
    """Return the type under which the items of a column are published.

    An ENUM becomes text, since its type would reveal the names of items that do not occur.

    Args:
        column_: The column.
        is_list: Whether it holds lists of items; otherwise each row has one item.
    """
    kind = column_.type.removesuffix("[]") if is_list else column_.type
    if is_list and not column_.type.endswith("[]"):
        raise UsageError(f"column {column_.name!r} is {kind}, not a list; name columns record and item instead")
    if kind.split("(")[0] in AS_TEXT:
        return "VARCHAR"
    if not Field(column_.name, kind).is_scalar:
        remedy = Field(column_.name, kind).suggest_cast() if not is_list else "cast it in source.query"
        raise UsageError(f"column {column_.name!r} holds {kind}, which can't be published; {remedy}")
    return kind


# Records --------------------------------------------------------------------------------------------------------------
# Prepare the records of a specification for publication, of any shape.


def prepare_records(
    db: Warehouse, spec: Spec, *, for_ledger: bool = False, choice: PersonChoice | None = None
) -> Records:
    """Make the source of a specification readable and count it, be it a table, item sets or categories.

    Args:
        db: The session that reads the source.
        spec: The specification.
        for_ledger: Whether to add the ids by which a ledger knows records and persons.
        choice: How the published records of each person are chosen; None chooses by a fresh key.

    Raises:
        UsageError: A column is unknown or can't be published, or NULL is refused in it.
        EngineError: A file can't be read.
    """
    from privsql.source.profile import refuse_uncategorical

    mechanism, source = spec.implementation, spec.source.model_copy(update={"frame": spec.frame})
    shape, types = mechanism.shape, determine_types(spec)
    if source.chooses_records:
        choice = replace(choice or PersonChoice.from_key(system_key(), ""), limit=spec.record_limit)
    if isinstance(shape, ItemSetShape):
        sets = prepare_sets(db, source, spec.columns, shape.universe(spec.mechanism), choice, types)
        return replace(sets, known_by=name_records(db, source, temp_table("source"))) if for_ledger else sets
    listed = shape.listed(spec.mechanism) if isinstance(shape, TableShape) else None
    records = replace(prepare_table(db, source, spec.columns, choice, types, listed), order=spec.order)
    if isinstance(shape, TableShape) and listed is None:  # the values of a public list are categories
        different = {records.roles.sensitive[0]: len(records.counts)}
        if len(records.roles.sensitive) > 1:
            for one, key in zip(records.roles.sensitive, records.roles.sa_keys, strict=True):
                counted = fill("core/profile", {"source": temp_table("domain"), "column": column(key)})
                different[one] = int(db.rows(counted)[0][2])
        values, coded = len(records.counts), spec.columns.categorical
        refuse_uncategorical(mechanism, different, values, records.records, categorical=coded)
    if not for_ledger:
        return records
    names = name_records(db, source, temp_table("source"))
    has_ids = "id" in names and not isinstance(mechanism.composition, BudgetComposition)
    if has_ids:
        holes: Holes = {"source": temp_table("source"), "id": names["id"], "keep": records.keep_predicate}
        nulls, twice = db.rows(fill("ledger/unnamed", holes))[0]
        if nulls or twice:
            wrong = f"is NULL in {nulls} records" if nulls else f"has {twice} values that stand more than once"
            raise UsageError(f"source.id: column {source.id!r} {wrong}; the ledger needs a unique id for every record")
    # Without an order of rows, ids only name records.
    return replace(records, known_by=names, has_ids=has_ids and db.keeps_order)


def determine_types(spec: Spec) -> FindTypes | None:
    """Return a function that finds column types from the specification alone, for a release that spends a budget.

    If the types were inferred from the values, a single record could change one. That happens in a file of texts, in a
    column of pandas without a type, or in whole numbers that pandas holds as floats because one is missing. For any
    other release the result is None.
    """
    mechanism = spec.implementation
    if not spec.is_private:
        return None
    domains: Mapping[str, Universe] = {}
    if isinstance(mechanism.shape, ItemSetShape) and spec.columns.item is not None:
        domains = {spec.columns.item: mechanism.shape.universe(spec.mechanism)}
    elif isinstance(mechanism.shape, CategoricalShape):
        known = {fold_name(name): domain for name, domain in mechanism.shape.domains(spec.mechanism).items()}
        domains = {name: known.get(fold_name(name), Universe(data=True)) for name in spec.columns.categories}
    elif isinstance(mechanism.shape, TableShape) and (listed := mechanism.shape.listed(spec.mechanism)) is not None:
        domains = {name: Universe(items=listed.values) for name in spec.columns.sensitive}
    return lambda db: {fold_name(name): _determine_type(db, domain) for name, domain in domains.items()}


def _determine_type(db: Relations, domain: Universe) -> str | None:
    """Return the type of a column as the specification alone determines it, by the list of values to publish.

    So no record of a release that spends a privacy budget can change the type. The result is None if the specification
    has no such list, because the values are those of the records.

    Args:
        db: The session.
        domain: The values that may be published, or the query that lists them.
    """
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
        texts = [exp.cast(column(one.name), "VARCHAR") for one in fields]
        rows = db.rows(exp.select(*texts).from_(temp_table("given")))
        inner = {row[1] for row in rows} if leaves and len(fields) > 1 else {None}
        kind = infer_type(row[0] for row in rows if row[0] is not None and row[0] not in inner)
    db.drop("given")
    return kind
