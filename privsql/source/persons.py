"""Persons with several records: refused, reduced to one each, or published as they are, which the release says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from privsql.engine.names import beside, fold
from privsql.engine.roles import canonical, comparable
from privsql.engine.sqlfiles import Holes, column, fill, identifier, is_null, temp
from privsql.engine.texts import beside_each_other, injective_text
from privsql.errors import UsageError
from privsql.model.records import Persons
from privsql.source.table import Reading, read_as

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Warehouse
    from privsql.engine.roles import Field
    from privsql.noise import Key
    from privsql.source.places import Source

GIVEN = "all_records"  # the relation of all records, where only one of each person is published
PURPOSE = "persons"
NOBODY = pa.table({"id": pa.array([], pa.string()), "trace": pa.array([], pa.int64())})
Published = tuple[exp.Expr, str]  # how a column that is published is read, and its type


@dataclass(frozen=True)
class Choice:
    """How one record of each person is chosen: a key, and (id, trace) of records in ``earlier`` releases.

    The key follows from nothing that is published, and from no record: who could make it again would learn from which
    record was taken what the others are.
    """

    key: Key
    called: str
    earlier: pa.Table | None = None

    @classmethod
    def by(cls, key: Key, called: str, earlier: pa.Table | None = None) -> Choice:
        """The choice by a publisher's key for a release of some name."""
        return cls(key.derived(PURPOSE), called, earlier)

    @property
    def reference(self) -> str:
        """A one-way digest of the key, which differs between releases of different names."""
        return self.key.derived("reference", self.called).reference


def mount(db: Warehouse, source: Source) -> exp.Table:
    """Make the publisher's table readable, and say as what: ``source``, unless that is made of it (``reduce``)."""
    reduced = source.person is not None and source.persons == "one"
    if reduced and source.counted_there:
        raise UsageError(f"source.persons = 'one' is made by DuckDB, and the source lies in {source.kind}")
    name = GIVEN if reduced else "source"
    db.mount(name, source.origin)
    return temp(name)


def counted(
    db: Warehouse, source: Source, records: exp.Table, keep: exp.Expr, choice: Choice | None = None
) -> Persons | None:
    """What a release says of its persons; None where nothing names them.

    ``UsageError`` for records of nobody, and for persons with several records where these are refused.
    """
    if source.person is None:
        return None
    own = _person(db, source, records)
    rule = source.persons or "refuse"
    every = exp.true() if rule == "one" else keep
    holes: Holes = {"source": records, "person": own, "keep": every}
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
    if rule == "one":
        return Persons(rule=rule, choice=choice.reference if choice is not None else None)
    return Persons(rule=rule, several=several, most=most) if rule == "count" else Persons(rule=rule)


def reduce(
    db: Warehouse,
    source: Source,
    records: exp.Table,
    published: Sequence[Published],
    keep: exp.Expr,
    choice: Choice,
) -> None:
    """Make ``source`` of one record of every person: of those that are kept, if any is, the one that ``choice`` takes.

    A record that an earlier release holds comes first, then the one with the smallest hash by the choice's key, which
    stands in a relation and never in a statement's text.
    """
    person, fields = _person(db, source, records), db.fields(records)
    texts = [injective_text(value.copy(), kind) for value, kind in published]
    places = {name: beside(name, (field.name for field in fields)) for name in ("copy", "place")}
    db.put("secret", choice.key.word(PURPOSE, bits=256))
    db.put("chosen", choice.earlier if choice.earlier is not None else NOBODY)
    copy = exp.cast(column(places["copy"]), "VARCHAR")
    word = exp.select(column("word", "k")).from_(exp.alias_(temp("secret"), "k", table=True)).subquery()
    name = _id(source, fields)
    holes: Holes = {
        "source": records,
        "columns": [column(field.name) for field in fields],
        "person": person,
        "record": beside_each_other(texts),
        "id": person if name is None else name,
        "left_out": exp.Case().when(keep.copy(), exp.Literal.number(0)).else_(exp.Literal.number(1)),
        "earlier": exp.Literal.number(0) if name is None else _earlier(db, name, published),
        "hash": db.hashed([word, injective_text(person.copy(), "VARCHAR"), *texts, copy]),
        **{name: identifier(place) for name, place in places.items()},
        "first": column(places["place"]).eq(exp.Literal.number(1)),
    }
    db.make("source", fill("core/reduced", holes), title="Taking one record of each person")
    db.drop("secret", "chosen")


def name_people(db: Warehouse, source: Source, reading: Reading) -> None:
    """Make all records readable as ``people``, and those that were chosen as ``chosen_people``, with their persons."""
    for name, records in (("people", temp(GIVEN)), ("chosen_people", temp("source"))):
        holes: Holes = {
            "source": records,
            "person": _person(db, source, records),
            "columns": [one.copy() for one in (*reading.qi, *reading.sa)],
            "keep": reading.keep.copy(),
        }
        db.view(name, fill("core/people", holes))


def _id(source: Source, fields: Sequence[Field]) -> exp.Expr | None:
    """The text that names a record, as a ledger compares it; None where no column does."""
    found = next((field for field in fields if source.id and fold(field.name) == fold(source.id)), None)
    return None if found is None else comparable(column(found.name), read_as(found.type))


def _earlier(db: Warehouse, name: exp.Expr, published: Sequence[Published]) -> exp.Expr:
    """0 for a record that stood in an earlier release as it is now, 1 for one of its name, 2 for others.

    Where ids are those of persons, each of a person's records has that name, and what is published tells them apart.
    """
    trace = db.digest([comparable(value.copy(), kind) for value, kind in published])
    chosen = exp.alias_(temp("chosen"), "e", table=True)
    names, both = column("id", "e"), [column("id", "e"), column("trace", "e")]
    pair = exp.Tuple(expressions=[name.copy(), trace])
    as_it_is = exp.In(this=pair, query=exp.select(*both).from_(chosen).subquery())
    there = exp.In(this=name.copy(), query=exp.select(names).from_(chosen.copy()).subquery())
    stays = exp.Case().when(as_it_is, exp.Literal.number(0)).when(there, exp.Literal.number(1))
    return stays.else_(exp.Literal.number(2))


def _person(db: Warehouse, source: Source, given: exp.Table) -> exp.Expr:
    """The text that names a person, NULL where nothing does."""
    available = {fold(field.name): field for field in db.fields(given)}
    found = available.get(fold(source.person or ""))
    if found is None:
        raise UsageError("source.person names a column that is not in the source")
    kind = read_as(found.type)
    named = comparable(canonical(column(found.name), kind), kind)
    return exp.Case().when(exp.not_(is_null(column(found.name))), named)
