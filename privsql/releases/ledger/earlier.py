"""What version 0.1 wrote down beside each source: taken over once, so that nothing spent or shown is forgotten.

Its ledger holds, for release N, the tables ``release_N`` (key, value), ``groups_N`` (id, bid) and ``records_N`` (id,
q0.., s0..), the last one with the records that were new. It stays as it is; what is added to it later is taken over.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from privsql.engine.folders import private
from privsql.engine.roles import comparable
from privsql.engine.sqlfiles import Holes, all_rows, column, fill, named, table
from privsql.errors import EngineError
from privsql.exact import text
from privsql.mechanisms.contract import Budget
from privsql.mechanisms.registry import of
from privsql.releases.ledger import storage
from privsql.releases.ledger.book import Book, Entry, Rows
from privsql.releases.ledger.place import held
from privsql.releases.ledger.subjects import summary
from privsql.source.names import known_as

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from privsql.engine.database import Workshop
    from privsql.releases.ledger.book import Event
    from privsql.source.spec import Spec

EARLIER = "earlier"  # the attached database
RELEASE = "release_"
Told = dict[str, Any]


def beside(spec: Spec) -> Path:
    """Where version 0.1 kept the ledger of a source, which was a file."""
    return spec.source.path.with_name(f"{spec.source.path.stem}.ledger.duckdb")


def take_over(db: Workshop, path: Path, spec: Spec) -> None:
    """Write down what version 0.1 knew: in a ledger of its own at ``path``, or in one beside the source."""
    if spec.ledger is not None and spec.ledger.database is not None and path.exists():
        _in_place(db, path, spec)
    if not spec.source.path.name:  # several files, or none
        return
    other = beside(spec)
    if other.exists() and other.resolve() != path.resolve():
        db.attach(other, EARLIER, read_only=True)
        try:
            _from_beside(db, path, other, spec)
        finally:
            db.detach(EARLIER)


def _in_place(db: Workshop, path: Path, spec: Spec) -> None:
    """Turn the file itself into a ledger of this version; its former tables stay."""
    with held(path, alone=True), private:
        db.attach(path, storage.LEDGER, read_only=False)
        try:
            tables = _tables(db, storage.LEDGER)
            if storage.EVENTS.name in tables or not any(name.startswith(RELEASE) for name in tables):
                return
            found = _told(db, storage.LEDGER, path)
            with db.together():
                storage.begin(db)
                _take(db, storage.LEDGER, path, storage.book(db, path), spec, found)
        finally:
            db.detach(storage.LEDGER)


def _from_beside(db: Workshop, path: Path, other: Path, spec: Spec) -> None:
    if storage.EVENTS.name in _tables(db, EARLIER):
        return  # of this version, which somebody has put there
    found = _told(db, EARLIER, other)
    with storage.reading(db, path) as book:
        taken = book.taken.get(str(other.resolve()), 0)
    if not any(one["number"] > taken for one in found):
        return
    with storage.writing(db, path) as book, db.together():
        _take(db, EARLIER, other, book, spec, found)


def _take(db: Workshop, database: str, file: Path, book: Book, spec: Spec, found: Sequence[Told]) -> None:
    """Write down the releases that are not taken over yet."""
    name = str(file.resolve())
    new = [one for one in found if one["number"] > book.taken.get(name, 0)]
    events: list[Event] = []
    for number, one in enumerate(new, book.next):
        records = _records(db, database, [e for e in found if e["number"] <= one["number"]], number)
        rows = None
        if records is not None:
            db.append(storage.SUBJECTS.name, records, into=storage.LEDGER)
            rows = Rows.of(db.rows(summary(records.subquery()))[0])
        events.append(_entry(one, number, spec, rows).as_event())
    events.append(("taken over", {"file": name, "last": max(one["number"] for one in found)}))
    storage.write(db, book, *events)


def _entry(told: Told, number: int, spec: Spec, rows: Rows | None) -> Entry:
    asked = told["spec"]["source"]
    source = spec.source.model_copy(update={"table": asked["table"], "query": asked["query"], "name": None})
    mechanism = of(told["spec"]["mechanism"]["kind"])
    epsilon = None
    if isinstance(mechanism.composition, Budget):
        epsilon = text(mechanism.composition.epsilon(mechanism.parameters.model_validate(told["spec"]["mechanism"])))
    return Entry(**{**told, "number": number, "source": known_as(source), "epsilon": epsilon, "rows": rows})


def _records(db: Workshop, database: str, entries: Sequence[Told], number: int) -> exp.Query | None:
    """The records of the last of some releases; None where none were kept."""
    last, tables = entries[-1], _tables(db, database)
    members = f"groups_{last['number']}"
    alike = [f"records_{one['number']}" for one in entries if _columns(one) == _columns(last)]
    parts = [_known(db, table(name, database)) for name in alike if name in tables]
    if members not in tables or not parts:
        return None
    known: exp.Query = parts[0]
    for part in parts[1:]:
        known = exp.union(known, part, distinct=False)
    holes: Holes = {
        "members": table(members, database),
        "known": known.subquery(),
        "number": exp.Literal.number(number),
    }
    return fill("ledger/taken", holes)


def _known(db: Workshop, records: exp.Table) -> exp.Select:
    """(id, trace, value) of records as they were written down."""
    fields = db.fields(records)
    shown = [one for one in fields if one.name != "id"]
    name = next(one for one in fields if one.name == "id")
    texts = [comparable(column(one.name), one.type) for one in shown]
    value = exp.cast(column("s0") if any(one.name == "s0" for one in shown) else exp.null(), "VARCHAR")
    chosen = [comparable(column("id"), name.type), db.digest(texts), value]
    return exp.select(*(named(what, key) for what, key in zip(chosen, ("id", "trace", "value"), strict=True))).from_(
        records
    )


def _columns(told: Told) -> Any:
    return [told["spec"]["columns"][key] for key in ("quasi_identifiers", "sensitive")]


def _told(db: Workshop, database: str, file: Path) -> list[Told]:
    """The releases in the attached ledger, oldest first."""
    names = [name for name in _tables(db, database) if name.startswith(RELEASE)]
    try:
        found = [{key: json.loads(value) for key, value in db.rows(all_rows(table(name, database)))} for name in names]
        return sorted(found, key=lambda one: int(one["number"]))
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError(f"{file}: the ledger is damaged or of another version of privsql") from error


def _tables(db: Workshop, database: str) -> list[str]:
    return [name for kind, name, _ in db.objects(database) if kind == "table"]
