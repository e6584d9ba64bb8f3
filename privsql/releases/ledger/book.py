"""The events of a ledger, the file that holds them, where it lies and who may read it."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from privsql import system
from privsql._version import __version__
from privsql.engine.files import fold, private
from privsql.engine.open import log_of, scratch
from privsql.engine.sqlfiles import DIALECT, Holes, all_rows, column, fill, table, temp
from privsql.errors import EngineError, UsageError
from privsql.keyed_random import key_file
from privsql.releases.ledger.evidence import Histogram, Rows
from privsql.source.records import same_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from privsql.engine.database import Container, Workshop
    from privsql.keyed_random import Key
    from privsql.source.spec import Spec

# Events ---------------------------------------------------------------------------------------------------------------
# What stands in a ledger: a row of events, in which nothing is ever changed or taken away.
#
# ``release`` a release with all that is known of it; ``made`` its file, where that came later; ``out`` that it has come
# into place; ``withdrawn`` one that never left the house; ``cap`` the most that a source may spend; ``elsewhere`` a
# source whose releases stand in another ledger.

FORMAT = 3
Event = tuple[str, dict[str, Any]]  # kind and what it says
PRIVATE = ("rows", "content", "draft", "out", "numbering", "histograms")  # what no output shows


def published(columns: Mapping[str, Any]) -> tuple[str, ...]:
    """The published columns of a specification in its order; those that are made coarser there with how they are.

    >>> published({"quasi_identifiers": ["age", "zip"], "sensitive": ["ill"], "bins": {"age": {"width": "5"}}})
    ('age {"bins": {"width": "5"}}', 'zip', 'ill')
    """
    coarser: dict[str, dict[str, Any]] = {}
    for key in ("bins", "levels", "others"):
        for name, how in columns.get(key, {}).items():
            coarser.setdefault(fold(name), {})[key] = how
    names = bare(columns)
    more = [json.dumps(coarser[fold(name)], sort_keys=True) if fold(name) in coarser else "" for name in names]
    return tuple(f"{name} {how}" if how else name for name, how in zip(names, more, strict=True))


def bare(columns: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the published columns."""
    return tuple(name for key in ("quasi_identifiers", "sensitive", "categories") for name in columns.get(key, ()))


def promised(source: Mapping[str, Any]) -> str | None:
    """The column that names persons where each has one record, so that what is promised is of persons; else None.

    >>> promised({"person": "Patient", "persons": "one"}), promised({"person": "patient", "persons": "count"})
    ('patient', None)
    """
    person = source.get("person")
    return None if person is None or source.get("persons") == "count" else fold(person)


@dataclass(frozen=True)
class Entry:
    """One release in the ledger. ``composes`` says what it and its predecessors guarantee together."""

    number: int
    made: str
    name: str
    target: str
    mechanism: str
    algorithm: str
    subject: str  # the column that names the records, "" for none
    spec: dict[str, Any]
    digest: str
    key: str
    records: int | None  # None where no exact number is stated
    fresh: int | None
    held_back: int | None
    composes: str
    allowed: bool
    rows: Rows
    source: tuple[str, ...] = ()  # what the source is called
    epsilon: str | None = None  # what the release spends; None where releases compose otherwise
    withdrawn: bool = False
    numbering: tuple[str, ...] = ()  # of ids and persons those that could be mere numbers
    histograms: tuple[Histogram, ...] = ()
    content: dict[str, str] = field(default_factory=dict)  # a fingerprint of every table, where a repeat is the same
    replaces: int | None = None  # the release that lay at its target
    draft: str = ""  # the folder in which it grew, which is there as long as its process is
    out: bool = True  # whether it has come into place, as far as is known

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        return {key: value for key, value in asdict(self).items() if key not in PRIVATE}

    def as_event(self) -> Event:
        """The event that writes it down."""
        return "release", asdict(self)

    @property
    def shown(self) -> str:
        """For messages."""
        return f"release {self.number} ({self.name}, {self.mechanism})"

    @property
    def columns(self) -> tuple[str, ...]:
        """The published columns in the order of the specification."""
        return published(self.spec["columns"])

    @property
    def bare(self) -> tuple[str, ...]:
        """The names of these columns in the source."""
        return bare(self.spec["columns"])

    @property
    def persons(self) -> str:
        """The column that names persons, "" for none."""
        return fold(self.spec["source"].get("person") or "")

    @property
    def id_space(self) -> str | None:
        """What its ids belong to, as far as its publisher states it."""
        space: str | None = self.spec["source"].get("id_space")
        return space

    @property
    def person(self) -> str | None:
        """The column that names the persons of whom the release promises something; None where it is of records."""
        return promised(self.spec["source"])

    def is_of(self, source: Iterable[str]) -> bool:
        """Whether it is a release of a source."""
        return same_source(self.source, tuple(source))


@dataclass(frozen=True)
class Book:
    """A ledger as it was read: how many ``events``, the releases, oldest first, and the caps by source."""

    events: int = 0
    entries: tuple[Entry, ...] = ()
    caps: dict[tuple[str, ...], Fraction] = field(default_factory=dict)
    elsewhere: dict[tuple[str, ...], Path] = field(default_factory=dict)  # by source, the last to move first

    @property
    def next(self) -> int:
        """The number of the next release."""
        return max((entry.number for entry in self.entries), default=0) + 1

    @property
    def live(self) -> list[Entry]:
        """The releases that are out."""
        return [entry for entry in self.entries if not entry.withdrawn]

    def after(self, events: Iterable[Event]) -> Book:
        """The same once releases have come into place or are withdrawn."""
        known = {entry.number: entry for entry in self.entries}
        for kind, told in events:
            known[told["number"]] = _after(known[told["number"]], kind)
        return replace(self, entries=tuple(known.values()))

    def of_source(self, source: Iterable[str]) -> list[Entry]:
        """The releases of a source, those that were withdrawn among them."""
        names = tuple(source)
        return [entry for entry in self.entries if entry.is_of(names)]

    def place(self, source: Iterable[str]) -> Path | None:
        """The other ledger in which the releases of a source stand."""
        names = tuple(source)
        return next((path for of, path in self.elsewhere.items() if same_source(of, names)), None)

    def cap(self, source: Iterable[str]) -> Fraction | None:
        """The most that a source may spend, None for no limit: the smallest of those of the sources that it shares."""
        names = tuple(source)
        return min((cap for of, cap in self.caps.items() if same_source(of, names)), default=None)


def spent(entries: Iterable[Entry]) -> Fraction:
    """The sum of the epsilons of releases: withdrawn ones too, for what was drawn is spent."""
    return sum((Fraction(entry.epsilon or 0) for entry in entries), Fraction(0))


def read(events: Sequence[Event]) -> Book:
    """What events amount to; ``EngineError`` if they are damaged, or of a version that is not known here."""
    entries: dict[int, Entry] = {}
    caps: dict[tuple[str, ...], Fraction] = {}
    elsewhere: dict[tuple[str, ...], Path] = {}
    try:
        for kind, told in events:
            match kind:
                case "ledger" if told["format"] == FORMAT:
                    pass
                case "release":
                    entries[told["number"]] = _entry(told)
                case "made":
                    entries[told["number"]] = replace(entries[told["number"]], digest=told["digest"])
                case "out" | "withdrawn":
                    entries[told["number"]] = _after(entries[told["number"]], kind)
                case "cap":
                    caps[tuple(told["source"])] = Fraction(told["epsilon"])
                case "elsewhere":
                    elsewhere.pop(tuple(told["source"]), None)
                    elsewhere = {tuple(told["source"]): Path(told["database"]), **elsewhere}
                case _:
                    raise ValueError(kind)
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError("the ledger is damaged or of another version of privsql") from error
    return Book(len(events), tuple(entries[number] for number in sorted(entries)), caps, elsewhere)


def _after(entry: Entry, kind: str) -> Entry:
    return replace(entry, withdrawn=True) if kind == "withdrawn" else replace(entry, out=True)


def _entry(told: dict[str, Any]) -> Entry:
    known = {key: value for key, value in told.items() if key != "at"}
    known |= {key: tuple(told[key]) for key in ("source", "numbering")}
    histograms = tuple(Histogram(**one) for one in told["histograms"])
    return Entry(**{**known, "rows": Rows(**told["rows"]), "histograms": histograms})


# The place ------------------------------------------------------------------------------------------------------------
# Where a publisher's ledger lies, who may read it, and who has it for the moment.
#
# One file per user, in a folder of mode 0700. It and whatever lies beside it (its write-ahead file, its lock, its key)
# have mode 0600 from the first byte, whatever the umask is, because they are made under a stricter one.

VARIABLE = "PRIVSQL_LEDGER"
NAME = "ledger.duckdb"
STATE = {"darwin": "Library/Application Support", "win32": "AppData/Local"}  # elsewhere that of the XDG standard
PATIENCE = 60.0  # seconds that a process waits for another one to let go
PAUSE = 0.02  # seconds between two tries


def path_of(spec: Spec) -> Path | None:
    """The ledger that a publication is written down in; None where it is switched off."""
    asked = spec.ledger
    if asked is not None and asked.off:
        return None
    return asked.database.resolve() if asked is not None and asked.database is not None else default()


def default() -> Path:
    """The user's own ledger: ``PRIVSQL_LEDGER``, a file or a folder, or in the state folder of the system."""
    given = os.environ.get(VARIABLE)
    if given:
        path = Path(given).expanduser().resolve()
        return path / NAME if path.is_dir() else path
    state = Path(os.environ.get("XDG_STATE_HOME", ""))  # a relative one is to be ignored
    try:
        folder = state if state.is_absolute() else Path.home() / STATE.get(sys.platform, ".local/state")
        return (folder / "privsql" / NAME).resolve()
    except RuntimeError as error:
        raise EngineError(f"there is no home folder for the ledger; set {VARIABLE}, or ledger.database") from error


def key_of(path: Path) -> Path:
    """The file with the secret from which the keys of releases follow."""
    return path.with_suffix(".key")


def secret(path: Path) -> Key:
    """The secret of a ledger, made if there is none. Who makes it may not have the ledger yet."""
    key = key_of(path)
    if key.exists():
        return key_file(key)
    with held(path, alone=True):
        return key_file(key)


def half_made(path: Path) -> list[Path]:
    """What processes have made so far of the secret of a ledger; it is left over, unless one of them has the ledger."""
    beginning = f".{key_of(path).name}."
    return [one for one in path.parent.glob(".*") if one.name.startswith(beginning)]


@contextmanager
def held(path: Path, *, alone: bool) -> Iterator[None]:
    """The ledger for this process: ``alone`` to write, or beside others that read. Waits for those who have it.

    Raises ``EngineError`` after ``PATIENCE``, or where the ledger's folder can't be written.
    """
    descriptor = _lock(path)
    try:
        _wait(descriptor, path, alone=alone)
        _tighten(path)
        yield
    finally:
        os.close(descriptor)  # and with it the lock


def reachable() -> bool:
    """Whether there is a place for the user's own ledger, and it can be written to."""
    try:
        os.close(_lock(default()))
    except EngineError:
        return False
    return True


def _lock(path: Path) -> int:
    """The open file beside a ledger that processes lock."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        _folder(path.parent)
        return system.opened(lock, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise EngineError(
            f"ledger {path}: {error.strerror}; set {VARIABLE}, or ledger.database, to a place that can be written"
        ) from error


def _folder(folder: Path) -> None:
    """Make the ledger's folder, for its owner alone; one that is there already stays as it is."""
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def _wait(descriptor: int, path: Path, *, alone: bool) -> None:
    end = time.monotonic() + PATIENCE
    while not system.locked(descriptor, alone=alone):
        if time.monotonic() > end:
            raise EngineError(f"ledger {path}: another process has it; wait for that one to end")
        time.sleep(PAUSE)


def _tighten(path: Path) -> None:
    """Take away the rights of others that an earlier version, or a copy, has left."""
    for file in (path, log_of(path)):
        try:
            mode = file.stat().st_mode
            if system.for_others(mode):
                file.chmod(mode & ~system.OTHERS & 0o777)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise EngineError(f"ledger {file}: {error.strerror}") from error


# The file -------------------------------------------------------------------------------------------------------------
# The file of a ledger: tables of events, of the records of all releases and of marks, attached while it is needed.

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
def open_for_reading(db: Container, path: Path) -> Iterator[Book]:
    """A ledger, attached as database ``ledger`` for reading; an empty book if there is none yet."""
    if not path.exists():  # nor its folder, perhaps, which nobody need be able to make
        yield Book()
        return
    with held(path, alone=False):
        db.attach(path, LEDGER, read_only=True)
        try:
            yield Book() if _is_empty(db) else read_book(db, path)
        finally:
            db.detach(LEDGER)


@contextmanager
def open_for_writing(db: Workshop, path: Path) -> Iterator[Book]:
    """A ledger, made if it is not there, attached for writing; ``db.together`` makes one step of what is written."""
    with held(path, alone=True), private:
        is_new = not path.exists()
        db.attach(path, LEDGER, read_only=False)
        try:
            if is_new or _is_empty(db):
                with db.together():
                    make_tables(db)
            yield read_book(db, path)
        finally:
            db.detach(LEDGER)


def replay_wal(path: Path) -> None:
    """Sweep what killed processes have left of a ledger; it takes in what they had written ahead."""
    with suppress(EngineError):  # where it can't be written, it is read as it is
        if half_made(path):
            with held(path, alone=True):
                for half in half_made(path):
                    half.unlink(missing_ok=True)
        if log_of(path).exists():
            with scratch() as db, open_for_writing(db, path):
                pass


def _is_empty(db: Container) -> bool:
    """Whether there is nothing in the attached file: it is new, or a process was killed that had just made it."""
    try:
        db.fields(EVENTS)
    except UsageError:
        return not db.objects(LEDGER)
    return False


def make_tables(db: Workshop) -> None:
    """Make the tables of the attached ledger."""
    for name, schema in ((EVENTS, EVENT), (SUBJECTS, SUBJECT), (MARKS, MARK)):
        db.put("nothing", schema.empty_table())
        db.make(name.name, all_rows(temp("nothing")), into=LEDGER)
        db.drop("nothing")
    write_events(db, Book(), ("ledger", {"format": FORMAT, "privsql": __version__}))


def read_book(db: Container, path: Path) -> Book:
    """What stands in the attached ledger; ``EngineError`` if it is none, or can't be read."""
    try:
        events = db.rows(exp.select(column("kind"), column("told")).from_(EVENTS).order_by(column("event")))
    except UsageError as error:  # there is no such table
        raise EngineError(f"{path}: is no ledger of this version of privsql") from error
    try:
        return read([(kind, json.loads(told)) for kind, told in events])
    except (TypeError, ValueError, RecursionError) as error:
        raise EngineError(f"{path}: the ledger is damaged or of another version of privsql") from error


def write_events(db: Workshop, known: Book, *events: Event) -> None:
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


def subjects_query(entry: Entry) -> exp.Query:
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


def as_plain_json(told: Any) -> Any:
    """A value as JSON keeps it, so that what was asked can be compared with what was written down."""
    return json.loads(json.dumps(told))
