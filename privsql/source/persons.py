"""Persons with several records: refused, reduced to one each, or published as they are, which the release says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine.names import beside, fold
from privsql.engine.roles import canonical, comparable
from privsql.engine.sqlfiles import Holes, column, fill, identifier, is_null, temp
from privsql.errors import UsageError
from privsql.model.records import Persons
from privsql.source.table import read_as

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Warehouse
    from privsql.source.places import Source

GIVEN = "all_records"  # the relation of all records, where only one of each person is published


def mount(db: Warehouse, source: Source) -> exp.Table:
    """Make the publisher's table readable, and say as what: ``source``, unless that is made of it (``reduce``)."""
    reduced = source.person is not None and source.persons == "one"
    if reduced and source.counted_there:
        raise UsageError(f"source.persons = 'one' is made by DuckDB, and the source lies in {source.kind}")
    name = GIVEN if reduced else "source"
    db.mount(name, source.origin)
    return temp(name)


def counted(db: Warehouse, source: Source, given: exp.Table, keep: exp.Expr) -> Persons | None:
    """What a release says of its persons; None where nothing names them.

    ``UsageError`` for records of nobody, and for persons with several records where these are refused.
    """
    if source.person is None:
        return None
    own = _person(db, source, given)
    rule = source.persons or "refuse"
    every = exp.true() if rule == "one" else keep
    holes: Holes = {"source": given, "person": own, "keep": every}
    persons, several, most, nulls = map(int, db.rows(fill("core/several", holes))[0])
    if nulls:
        raise UsageError(
            f"source.person is NULL in {nulls:,} records, which are nobody's; leave them out in source.query"
        )
    if rule == "refuse" and several:
        raise UsageError(
            f"{several:,} of {persons:,} persons have several records, up to {most:,}, and a release protects "
            "single records; choose source.persons = 'one' (one record of each person) or 'count' (all; it says so)"
        )
    return Persons(rule=rule, several=several, most=most) if rule == "count" else Persons(rule=rule)


def reduce(db: Warehouse, source: Source, given: exp.Table, published: Sequence[exp.Expr], keep: exp.Expr) -> None:
    """Make ``source`` of one record of every person: of those that are kept, if any is, that with the smallest hash."""
    own, fields = _person(db, source, given), db.fields(given)
    shown = [exp.cast(one.copy(), "VARCHAR") for one in published]
    texts = [exp.Coalesce(this=one, expressions=[exp.Literal.string("")]) for one in shown]
    place = beside("place", (field.name for field in fields))
    ids = [column(field.name) for field in fields if source.id and fold(field.name) == fold(source.id)]
    holes: Holes = {
        "source": given,
        "columns": [column(field.name) for field in fields],
        "person": own,
        "left_out": exp.Case().when(keep.copy(), exp.Literal.number(0)).else_(exp.Literal.number(1)),
        "hash": db.hashed([own, *texts]),
        "ties": [*(one.copy() for one in published), *ids],
        "place": identifier(place),
        "first": column(place).eq(exp.Literal.number(1)),
    }
    db.make("source", fill("core/reduced", holes), title="Taking one record of each person")


def _person(db: Warehouse, source: Source, given: exp.Table) -> exp.Expr:
    """The text that names a person, NULL where nothing does."""
    available = {fold(field.name): field for field in db.fields(given)}
    found = available.get(fold(source.person or ""))
    if found is None:
        raise UsageError("source.person names a column that is not in the source")
    kind = read_as(found.type)
    named = comparable(canonical(column(found.name), kind), kind)
    return exp.Case().when(exp.not_(is_null(column(found.name))), named)
