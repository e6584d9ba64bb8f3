"""From the publisher's source to counted records: roles, NULL policy, persons, bins, domain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine.names import fold, label
from privsql.engine.roles import Field, Roles, canonical
from privsql.engine.sqlfiles import DIALECT, Holes, column, every, fill, is_null, named, some, temp
from privsql.errors import UsageError
from privsql.model.records import Persons
from privsql.noise import system_key
from privsql.source import persons
from privsql.source.binning import Coarse, binned
from privsql.source.columns import missing
from privsql.source.persons import Choice
from privsql.source.table import AS_TEXT, Reading, TableRecords, read_as

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Warehouse
    from privsql.source.columns import Columns
    from privsql.source.places import Source


def prepare(db: Warehouse, source: Source, columns: Columns, choice: Choice | None = None) -> TableRecords:
    """Mount the source, apply the NULL policy and count the sensitive values.

    ``choice``: which record of each person is taken (None: by a fresh key).
    Raises ``UsageError`` for unknown columns, types that can't be published and NULL where it is refused,
    ``EngineError`` for files that can't be read.
    """
    given = persons.mount(db, source)
    _refuse_calendar(source, columns)
    roles, sources, coarse = _roles(db, columns, given)
    keep = every([_not_null(name, sources) for name in sources if columns.policy(name) == "suppress"])
    reading = Reading(
        _named(sources, [f.name for f in roles.quasi_identifiers], roles.qi_keys),
        _named(sources, [f.name for f in roles.sensitive], roles.sa_keys),
        keep,
    )
    choice = choice or Choice.by(system_key(), "")
    if _is_private(source, columns):
        told: Persons | None = Persons(rule="one", choice=choice.reference)
    else:
        told = persons.counted(db, source, given, keep, choice)
    if told is not None and told.rule == "one":
        fields = (*roles.quasi_identifiers, *roles.sensitive)
        persons.reduce(db, source, given, [(sources[one.name], one.type) for one in fields], keep, choice)
        persons.name_people(db, source, reading)
    source_records, kept = _count(db, columns, roles, keep)
    for one in coarse:
        _refuse_misfits(db, one, keep)
    holes: Holes = {
        "source": temp("source"),
        "sa": reading.sa,
        "keep": keep,
        "keys": roles.sa(),
        "sa_order": roles.sa(),
    }
    db.make("domain", fill("core/domain", holes), title="Counting the sensitive values")
    labels = [exp.cast(item, "VARCHAR") for item in roles.sa()]
    rows = db.rows(fill("core/domain_labels", {"domain": temp("domain"), "labels": labels}))
    return TableRecords(
        db,
        roles,
        tuple(label(row[:-1]) for row in rows),
        tuple(int(row[-1]) for row in rows),
        source_records,
        source_records - kept,
        reading,
        persons=told,
    )


def _is_private(source: Source, columns: Columns) -> bool:
    """Return whether one record of each person is taken, and nothing about persons may be counted or refused."""
    return bool(columns.categories) and source.person is not None


def _refuse_calendar(source: Source, columns: Columns) -> None:
    """``UsageError`` for months and the like of a source that another engine counts: engines differ in them."""
    name = next((name for name, bins in columns.bins.items() if bins.unit is not None), None)
    if name is not None and source.counted_there:
        raise UsageError(
            f"columns.bins: column {name!r}: {columns.bins[name]} are made by DuckDB alone, and the source lies in "
            f"{source.kind}; make them in its query"
        )


def _roles(db: Warehouse, columns: Columns, given: exp.Table) -> tuple[Roles, dict[str, exp.Expr], list[Coarse]]:
    """The fields by role under their true names, how each is read from ``source``, and those that are coarser there."""
    available = {fold(field.name): field for field in db.fields(given)}
    reading: dict[str, exp.Expr] = {}
    misfits: list[Coarse] = []

    def resolve(name: str) -> Field:
        field = available.get(fold(name))
        if field is None:
            raise missing(name, (f.name for f in available.values()))
        if not publishable(field):
            raise UsageError(
                f"column {name!r} has type {field.type}, which can't be published; cast it in source.query"
            )
        kind = read_as(field.type)
        reading[field.name] = canonical(column(field.name), kind)
        if (coarse := binned(Field(field.name, kind), columns, reading[field.name])) is not None:
            reading[field.name] = coarse.value
            misfits.append(coarse)
        return Field(field.name, kind)

    quasi = tuple(resolve(name) for name in columns.quasi_identifiers)
    sensitive = tuple(resolve(name) for name in (*columns.sensitive, *columns.categories))
    own = {one.name: available[fold(one.name)].type for one in (*quasi, *sensitive)}
    coarse = {one.name for one in misfits}
    orders = {name: labels_of(kind) for name, kind in own.items() if kind.startswith("ENUM(") and name not in coarse}
    return Roles(quasi, sensitive, orders), reading, misfits


def labels_of(kind: str) -> tuple[str, ...]:
    """The labels of an ENUM, in its order.

    >>> labels_of("ENUM('low', 'it''s high')")
    ('low', "it's high")
    """
    return tuple(one.name for one in exp.DataType.build(kind, dialect=DIALECT).expressions)


def publishable(field: Field) -> bool:
    """Whether values of this type can be published: scalars whose text and order are the same everywhere."""
    return field.is_scalar or (field.type.split("(")[0] in AS_TEXT and not field.type.endswith("]"))


def _named(reading: dict[str, exp.Expr], names: list[str], keys: tuple[str, ...]) -> list[exp.Expr]:
    return [named(reading[name], key) for name, key in zip(names, keys, strict=True)]


def _not_null(name: str, reading: dict[str, exp.Expr]) -> exp.Expr:
    return exp.not_(is_null(reading[name].copy()))


def _refuse_misfits(db: Warehouse, coarse: Coarse, keep: exp.Expr) -> None:
    """``UsageError`` if a record that is published has no bin or group."""
    if coarse.misfit is not None:
        outside = fill("core/matching", {"table": temp("source"), "filter": exp.and_(keep, coarse.misfit)})
        records = int(db.rows(outside)[0][0])
        if records:
            raise UsageError(f"column {coarse.name!r}: {records:,} records hold {coarse.why}")


def _count(db: Warehouse, columns: Columns, roles: Roles, keep: exp.Expr) -> tuple[int, int]:
    """Records of the source, and those that the NULL policy keeps; refuses by name."""
    refused = [f.name for f in (*roles.quasi_identifiers, *roles.sensitive) if columns.policy(f.name) == "refuse"]
    missing = [is_null(column(name)) for name in refused]

    def counts(conditions: Sequence[exp.Expr]) -> tuple[int, int, int]:
        holes = {"source": temp("source"), "keep": keep, "refuse": exp.and_(keep, some(conditions))}
        records, kept, bad = db.rows(fill("core/null_counts", holes))[0]
        return int(records), int(kept), int(bad)

    records, kept, bad = counts(missing)
    if bad:
        for name, condition in zip(refused, missing, strict=True):
            if of_column := counts([condition])[2]:
                raise UsageError(
                    f"column {name!r} is NULL in {of_column} records; "
                    f"set nulls.{name} to 'suppress' (leave them out) or 'value' (NULL is a value of its own)"
                )
    return records, kept
