"""The file of a ledger: tables of events, of the records of all releases and of marks, attached while it is needed."""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from privsql._version import __version__
from privsql.engine.folders import private
from privsql.engine.open import log_of, scratch
from privsql.engine.sqlfiles import DIALECT, Holes, all_rows, column, fill, table, temp
from privsql.errors import EngineError, UsageError
from privsql.releases.ledger.book import FORMAT, Book, Event, read
from privsql.releases.ledger.place import half_made, held

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from privsql.engine.database import Container, Workshop
    from privsql.releases.ledger.book import Entry

LEDGER = "ledger"  # the attached database
EVENTS, SUBJECTS, MARKS = (table(name, LEDGER) for name in ("events", "subjects", "marks"))
EVENT = pa.schema([("event", pa.int64()), ("kind", pa.string()), ("told", pa.string())])
SUBJECT = pa.schema(
    [
        ("number", pa.int32()),
        ("id", pa.string()),
        ("person", pa.string()),
        ("trace", pa.int64()),
        ("records", pa.int64()),
        ("bid", pa.int32()),
        ("value", pa.string()),
    ]
)
MARK = pa.schema(
    [
        ("number", pa.int32()),
        ("kind", pa.string()),
        ("name", pa.string()),
        ("field", pa.int32()),
        ("mark", pa.int32()),
    ]
)


@contextmanager
def reading(db: Container, path: Path) -> Iterator[Book]:
    """A ledger, attached as database ``ledger`` for reading; an empty book if there is none yet."""
    if not path.exists():  # nor its folder, perhaps, which nobody need be able to make
        yield Book()
        return
    with held(path, alone=False):
        db.attach(path, LEDGER, read_only=True)
        try:
            yield Book() if _is_empty(db) else book(db, path)
        finally:
            db.detach(LEDGER)


@contextmanager
def writing(db: Workshop, path: Path) -> Iterator[Book]:
    """A ledger, made if it is not there, attached for writing; ``db.together`` makes one step of what is written."""
    with held(path, alone=True), private:
        is_new = not path.exists()
        db.attach(path, LEDGER, read_only=False)
        try:
            if is_new or _is_empty(db):
                with db.together():
                    begin(db)
            yield book(db, path)
        finally:
            db.detach(LEDGER)


def settle(path: Path) -> None:
    """Sweep what killed processes have left of a ledger; it takes in what they had written ahead."""
    with suppress(EngineError):  # where it can't be written, it is read as it is
        if half_made(path):
            with held(path, alone=True):
                for half in half_made(path):
                    half.unlink(missing_ok=True)
        if log_of(path).exists():
            with scratch() as db, writing(db, path):
                pass


def _is_empty(db: Container) -> bool:
    """Whether there is nothing in the attached file: it is new, or a process was killed that had just made it."""
    try:
        db.fields(EVENTS)
    except UsageError:
        return not db.objects(LEDGER)
    return False


def begin(db: Workshop) -> None:
    """Make the tables of the attached ledger."""
    for name, schema in ((EVENTS, EVENT), (SUBJECTS, SUBJECT), (MARKS, MARK)):
        db.put("nothing", schema.empty_table())
        db.make(name.name, all_rows(temp("nothing")), into=LEDGER)
        db.drop("nothing")
    write(db, Book(), ("ledger", {"format": FORMAT, "privsql": __version__}))


def book(db: Container, path: Path) -> Book:
    """What stands in the attached ledger; ``EngineError`` if it is none, or can't be read."""
    try:
        events = db.rows(exp.select(column("kind"), column("told")).from_(EVENTS).order_by(column("event")))
    except UsageError as error:  # there is no such table
        raise EngineError(f"{path}: is no ledger of this version of privsql") from error
    try:
        return read([(kind, json.loads(told)) for kind, told in events])
    except (TypeError, ValueError, RecursionError) as error:
        raise EngineError(f"{path}: the ledger is damaged or of another version of privsql") from error


def write(db: Workshop, known: Book, *events: Event) -> None:
    """Add events to the attached ledger, after those that ``known`` holds."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    numbers = list(range(known.events, known.events + len(events)))
    told = [json.dumps({"at": now, **what}) for _, what in events]
    rows = pa.table([pa.array(part) for part in (numbers, [kind for kind, _ in events], told)], schema=EVENT)
    db.put("events", rows)
    db.append(EVENTS.name, all_rows(temp("events")), into=LEDGER)
    db.drop("events")


def write_subjects(db: Workshop, number: int, assigned: exp.Table | exp.Subquery, bid: exp.Expr) -> None:
    """Add the records of a release: ``assigned`` are their traces, and ``bid`` the group of each, as an expression."""
    holes = {"assigned": assigned, "number": exp.Literal.number(number), "bid": bid}
    db.append(SUBJECTS.name, fill("ledger/written", holes), into=LEDGER)


def subjects(entry: Entry) -> exp.Query:
    """The records of a release in the attached ledger: (id, person, trace, records, bid, value)."""
    return fill("ledger/subjects", {"subjects": SUBJECTS, "number": exp.Literal.number(entry.number)})


def marks_of(entry: Entry, kind: str) -> exp.Query:
    """The marks of a release in the attached ledger beside its ids or persons: (name, field, mark)."""
    holes: Holes = {
        "marks": MARKS,
        "number": exp.Literal.number(entry.number),
        "kind": exp.Literal.string(kind),
    }
    return fill("ledger/marked", holes)


def known_values(entries: Sequence[Entry], kind: str) -> exp.Query:
    """(id, value) of all records that some releases hold, values of type ``kind``."""
    value = exp.cast(column("value"), exp.DataType.build(kind, dialect=DIALECT))
    return fill("ledger/values", {"subjects": SUBJECTS, "among": among(entries), "value": value})


def among(entries: Sequence[Entry]) -> exp.Expr:
    """The predicate of ``sql/ledger`` that chooses releases."""
    return column("number", "s").isin(*(exp.Literal.number(entry.number) for entry in entries))


def plain(told: Any) -> Any:
    """A value as JSON keeps it, so that what was asked can be compared with what was written down."""
    return json.loads(json.dumps(told))
