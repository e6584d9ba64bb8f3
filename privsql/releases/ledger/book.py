"""Read and write a publisher's ledger: its events, the file that holds them, where it lies, and who may read it.

An event is an entry that is never changed or removed, such as a release, its withdrawal, or a cap on a budget.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from dataclasses import fields as dataclass_fields
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa
from sqlglot import exp

from privsql import system
from privsql.engine.files import fold_name, private
from privsql.engine.open import log_of, open_scratch
from privsql.engine.sqlfiles import DIALECT, Field, all_rows, column, fill, table, temp_table
from privsql.errors import EngineError, UsageError
from privsql.exact import fraction_text
from privsql.keyed_random import Key, key_file
from privsql.mechanisms.base import BudgetComposition, Composition, Unit
from privsql.mechanisms.registry import get_mechanism
from privsql.model.parameters import Wording
from privsql.outcomes import Outcome, Part, pairs
from privsql.releases.ledger.budget import Budget, Cap, Spending
from privsql.releases.ledger.evidence import RecordSummary
from privsql.source.population import is_same_population, name_population
from privsql.system import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from privsql.engine.database import Container, EngineSession
    from privsql.source.spec import Spec

# Events ---------------------------------------------------------------------------------------------------------------
# A ledger is a sequence of events, none of which is ever changed or removed.
#
# ``release``: a release and all that is known of it; ``made``: the digest of its file, if that came later; ``out``: it
# has come into place; ``withdrawn``: it was never distributed; ``cap``: the budget of a population; ``elsewhere``: the
# releases of a population stand in another ledger.

FORMAT = 1  # ledgers of any other format are not read
Event = tuple[str, dict[str, Any]]  # kind, and the fields that it states
PRIVATE = ("rows", "content", "setting", "draft", "out", "counters")  # fields that no output shows
STORED = {"table", "query", "id", "person", "persons", "order", "population"}  # parts of the source that are stored
LEFT_OUT: dict[str, Any] = {
    "source": True,
    "ledger": True,
    "release": {"to", "schema_", "sampling_rate", *get_args(Wording)},
}
ROLES = ("quasi_identifiers", "sensitive", "categories")  # lists of published columns


@dataclass(frozen=True, kw_only=True)
class LedgerRequest:
    """A publisher's request for a release, as the ledger stores it.

    Attributes:
        name: The name of the release.
        target: Where the release is to lie.
        mechanism: The kind of the mechanism.
        algorithm: The algorithm.
        subject: The column that holds ids of records; empty if there is none.
        spec: The specification as JSON, without the places of source and release.
        population: The names of the population, the people in the source.
    """

    name: str
    target: str
    mechanism: str
    algorithm: str
    subject: str
    spec: dict[str, Any]
    population: tuple[str, ...]

    @staticmethod
    def from_spec(spec: Spec) -> LedgerRequest:
        """Return the request that a specification makes."""
        parts: dict[str, Any] = json.loads(spec.model_dump_json(exclude=LEFT_OUT))
        parts["source"] = spec.source.model_dump(mode="json", include=STORED, exclude_none=True)
        return LedgerRequest(
            name=spec.name,
            target=str(spec.target.resolve()),
            mechanism=spec.mechanism.kind,
            algorithm=spec.mechanism.algorithm,
            subject=fold_name(spec.source.id or ""),
            spec=parts,
            population=name_population(spec.source),
        )

    @property
    def column_names(self) -> tuple[str, ...]:
        """Return the source's names of all columns with a role, such as quasi-identifiers."""
        return tuple(name for key in ROLES for name in self.spec["columns"].get(key, ()))

    @property
    def person_column(self) -> str:
        """Return the column that names persons; empty if there is none."""
        return fold_name(self.spec["source"].get("person") or "")

    @property
    def promised_person(self) -> str | None:
        """Return the column that names persons if the release keeps one record of each, and so promises per person.

        The result is None if it promises per record.
        """
        return None if self.spec["source"].get("persons") == "count" else self.person_column or None

    @property
    def determining_parts(self) -> list[Any]:
        """Return the parts of the request that can change the tables of the release.

        These are the columns, the mechanism with its parameters, and the order if it is not ``stream``. Requests that
        agree in them give the same tables from the same records and key.
        """
        order = self.spec.get("release", {}).get("order") or "stream"
        return [self.spec["columns"], self.spec["mechanism"], *([order] if order != "stream" else [])]

    @property
    def composition(self) -> Composition:
        """Return the rule that says what releases of this mechanism guarantee together."""
        return get_mechanism(self.mechanism, self.algorithm).composition

    @property
    def unit(self) -> Unit | None:
        """Return what the budget hides: whether a record is present ("presence"), or which value it has ("value").

        The result is None if the release spends no budget.
        """
        composition = self.composition
        return composition.unit if isinstance(composition, BudgetComposition) else None

    def is_of(self, population: Iterable[str]) -> bool:
        """Return whether the release is about the people of a population: both have a name in common.

        Args:
            population: The names of the population.
        """
        return is_same_population(self.population, population)


@dataclass(frozen=True, kw_only=True)
class LedgerEntry(LedgerRequest, Outcome):
    """One release, as the ledger records it.

    Attributes:
        number: Its number in the ledger.
        made: When it was made.
        key: Where its key comes from, with a digest of the key.
        composes: In words, what it and earlier releases of the same people guarantee together.
        allowed: Whether the publisher allowed it although no guarantee covers it and earlier releases.
        rows: The number of records of the source, and a digest of them.
        counters: The kinds of names (ids, persons) that could be mere numbering such as 1, 2, 3. Another table may
            have such names by chance, so they do not prove that its people are the same.
        digest: The digest of its file; empty before it is known.
        records: The number of published records; None if no exact number may be stated.
        fresh: The number of records that no earlier release holds; None if it may not be stated.
        held_back: The number of records that were left for a later release; None if it may not be stated.
        epsilon: The epsilon that it spends, as a fraction; None if it spends no budget.
        delta: Its delta, as a fraction.
        rho: Its budget of zero-concentrated differential privacy, as a fraction; None if delta is 0.
        withdrawn: Whether it was withdrawn.
        content: The digest of its tables; a repetition of the release has the same.
        setting: What the search of the mechanism found, for repetitions; None if there is nothing.
        replaces: The number of the release that lay at its target before; None if there was none.
        frees: Whether the replaced release no longer counts, because nobody has it or it has the same contents.
        draft: The folder in which it was made, which exists as long as the process that makes it.
        out: Whether it has been moved to its target, as far as the ledger knows.
    """

    number: int
    made: str
    key: str
    composes: str
    allowed: bool
    rows: RecordSummary
    counters: tuple[str, ...]
    digest: str = ""
    records: int | None = None
    fresh: int | None = None
    held_back: int | None = None
    epsilon: str | None = None
    delta: str = "0"
    rho: str | None = None
    withdrawn: bool = False
    content: str = ""
    setting: dict[str, Any] | None = None
    replaces: int | None = None
    frees: bool = False
    draft: str = ""
    out: bool = True

    @staticmethod
    def from_request(request: LedgerRequest, **fields: Any) -> LedgerEntry:
        """Return the entry of a release from its request.

        Args:
            request: The request.
            **fields: The further fields of the entry.
        """
        made = datetime.now(UTC).isoformat(timespec="seconds")
        return LedgerEntry(**vars(request), made=made, **fields)

    @staticmethod
    def from_event(fields: Mapping[str, Any]) -> LedgerEntry:
        """Return the entry of a release from the fields that the ledger stores for it."""
        known = {one.name: fields[one.name] for one in dataclass_fields(LedgerEntry)}
        known |= {key: tuple(fields[key]) for key in ("population", "counters")}
        return LedgerEntry(**{**known, "rows": RecordSummary(**fields["rows"])})

    def as_event(self) -> Event:
        """Return the event that writes this entry into the ledger."""
        return "release", asdict(self)

    def as_json(self) -> dict[str, Any]:
        """Return the entry as the object that ``--json`` prints."""
        return {key: value for key, value in asdict(self).items() if key not in PRIVATE}

    def show(self, *, verbose: bool = False) -> Iterator[Part]:
        """Yield the lines to print: all that the ledger holds about the release."""
        facts = self.as_json() | {"population": ", ".join(self.population), "spec": None}
        yield pairs((key.replace("_", " "), one) for key, one in facts.items() if one not in (None, "", False, {}))

    @property
    def spending(self) -> Spending | None:
        """Return the epsilon, delta and rho that the release spends; None if it spends no budget."""
        if self.epsilon is None:
            return None
        return Spending(Fraction(self.epsilon), Fraction(self.delta), None if self.rho is None else Fraction(self.rho))

    @property
    def day(self) -> date:
        """Return the date on which the release was made."""
        return date.fromisoformat(self.made[:10])

    @property
    def label(self) -> str:
        """Return the text by which messages call the release: its number, name and mechanism."""
        return f"release {self.number} ({self.name}, {self.mechanism})"


@dataclass(frozen=True)
class Book:
    """The contents of a ledger, as read at one moment.

    Attributes:
        events: The number of events (entries such as a release, a withdrawal or a cap) in the file.
        releases: The releases, by number.
        caps: The caps on spending, by name of the population in lower case.
        elsewhere: The other ledgers that record releases of a population, by the names of the population.
    """

    events: int = 0
    releases: dict[int, LedgerEntry] = field(default_factory=dict)
    caps: dict[str, Cap] = field(default_factory=dict)
    elsewhere: dict[tuple[str, ...], Path] = field(default_factory=dict)

    @staticmethod
    def from_rows(rows: Sequence[tuple[str, str]], before: int | None = None) -> Book:
        """Return the book that follows from the events of a ledger.

        Args:
            rows: The events in order, as (kind, JSON).
            before: The number of a release; the book is as it was before that release. None to apply all events.

        Raises:
            EngineError: An event is damaged, or the ledger has another format.
        """
        try:
            events = [(kind, json.loads(text)) for kind, text in rows]
            made = [at for at, (kind, of) in enumerate(events) if kind == "release" and of["number"] == before]
            return replace(Book().with_events(events[: made[0]] if made else events), events=len(rows))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise EngineError(
                "the ledger is damaged; if a development version of privsql wrote it, move it away and publish anew"
            ) from error

    def with_events(self, events: Sequence[Event]) -> Book:
        """Return the contents of the ledger after further events (lines such as a release, a withdrawal or a cap).

        Raises:
            EngineError: An event states another format of ledgers.
        """
        book = Book(self.events, dict(self.releases), dict(self.caps), dict(self.elsewhere))
        for kind, fields in events:
            match kind:
                case "ledger" if fields["format"] == FORMAT:
                    pass
                case "ledger":
                    raise EngineError(
                        f"the ledger is of format {fields['format']}, and this version of privsql reads format "
                        f"{FORMAT}; move the ledger away and publish anew"
                    )
                case "release":
                    book.releases[fields["number"]] = LedgerEntry.from_event(fields)
                case "made":
                    book._change_entry(fields, digest=fields["digest"])
                case "out":
                    book._change_entry(fields, out=True)
                case "withdrawn":
                    book._change_entry(fields, withdrawn=True)
                case "cap":
                    pair = Fraction(fields["epsilon"]), Fraction(fields["delta"])
                    book.caps.update({name.casefold(): Cap(name, *pair) for name in fields["population"]})
                case "elsewhere":
                    book.elsewhere.pop(tuple(fields["population"]), None)  # the last one stands last
                    book.elsewhere[tuple(fields["population"])] = Path(fields["database"])
                case _:
                    raise ValueError(kind)
        return book

    def _change_entry(self, fields: Mapping[str, Any], **changes: Any) -> None:
        self.releases[fields["number"]] = replace(self.releases[fields["number"]], **changes)

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return the releases, oldest first."""
        return tuple(self.releases.values())

    @property
    def next_number(self) -> int:
        """Return the number that the next release will get."""
        return max(self.releases, default=0) + 1

    @property
    def live_entries(self) -> list[LedgerEntry]:
        """Return the releases that were not withdrawn."""
        return [entry for entry in self.entries if not entry.withdrawn]

    def list_of_population(self, population: Sequence[str]) -> list[LedgerEntry]:
        """Return the releases of a population, including withdrawn ones."""
        return [entry for entry in self.entries if entry.is_of(population)]

    def find_other_ledger(self, population: Sequence[str]) -> Path | None:
        """Return the other ledger that most recently recorded a release of a population; None if there is none."""
        others = [path for of, path in self.elsewhere.items() if is_same_population(of, population)]
        return others[-1] if others else None

    def list_caps(self, population: Sequence[str]) -> list[Cap]:
        """Return the caps that apply to a population: one for each of its names that has one."""
        return [self.caps[name.casefold()] for name in population if name.casefold() in self.caps]

    def find_budget(self, population: Sequence[str]) -> Budget:
        """Return what the releases of a population have spent, and its caps.

        A release hides either whether a record is present or which value it has. The two kinds of releases are added
        up separately, and the kind that spent most is returned. Withdrawn releases count, because their noise was
        drawn.
        """
        units: dict[Unit | None, list[Spending]] = {}
        for one in self.list_of_population(population):
            units.setdefault(one.unit, []).extend([one.spending] if one.spending is not None else [])
        caps = tuple(self.list_caps(population))
        budgets = [Budget(tuple(parts), caps) for parts in units.values()]
        return max(budgets, key=lambda one: one.spent, default=Budget((), caps))


def make_cap(population: Iterable[str], epsilon: Fraction, delta: Fraction, by: str) -> Event:
    """Return the line (event) of a ledger that limits what the releases of a population may spend together.

    Args:
        population: The names of the population.
        epsilon: The most that its releases may spend together.
        delta: The delta at which this epsilon is stated.
        by: Who sets the cap.
    """
    pair = {"epsilon": fraction_text(epsilon), "delta": fraction_text(delta)}
    return "cap", {"population": list(population), **pair, "by": by}


# The place ------------------------------------------------------------------------------------------------------------
# The path of a publisher's ledger, its access rights, and its lock.
#
# There is one file per user, in a folder of mode 0700. The file, its write-ahead file, its lock and its key have mode
# 0600 from the first byte, because they are made under a stricter umask.

VARIABLE = "PRIVSQL_LEDGER"
NAME = "ledger.duckdb"
PATIENCE = 60.0  # seconds that a process waits for another one that has locked the ledger
PAUSE = 0.02  # seconds between two tries


def path_of(spec: Spec) -> Path | None:
    """Return the file of the ledger that a specification names; None if the specification switches the ledger off."""
    ledger = spec.ledger
    if ledger is None:
        return default_path()
    if ledger.off:
        return None
    return default_path() if ledger.database is None else ledger.database.resolve()


def default_path() -> Path:
    """Return the user's own ledger: the path in ``PRIVSQL_LEDGER``, or a file in the user's folder for state."""
    setting = os.environ.get(VARIABLE)
    if setting:
        path = Path(setting).expanduser().resolve()
        return path / NAME if path.is_dir() else path
    folder = system.user_folder("STATE")
    if folder is None:
        raise EngineError(f"there is no home folder for the ledger; set {VARIABLE}, or ledger.database")
    return (folder / NAME).resolve()


def key_of(path: Path) -> Path:
    """Return the file that holds a ledger's secret, from which the keys of its releases are derived."""
    return path.with_suffix(".key")


def get_secret(path: Path) -> Key:
    """Return the secret of a ledger; create it if the ledger has no secret and no events yet.

    Raises:
        EngineError: The ledger has events but no secret. With a new secret it would not recognize the records that it
            holds.
    """
    key = key_of(path)
    if key.exists():
        return key_file(key)
    if path.exists():
        with open_scratch() as db, open_for_reading(db, path) as book:
            if book.events:
                raise EngineError(f"ledger {path}: its key {key} is missing; put it back")
    with lock_ledger(path, alone=True):
        return key_file(key)


def list_unfinished_keys(path: Path) -> list[Path]:
    """Return the files in which processes began to write a ledger's secret.

    They are leftovers of killed processes, unless a process has the ledger open.
    """
    beginning = f".{key_of(path).name}."
    return [one for one in path.parent.glob(".*") if one.name.startswith(beginning)]


@contextmanager
def lock_ledger(path: Path, *, alone: bool) -> Iterator[None]:
    """Lock the ledger during a ``with``, after waiting for other processes.

    Args:
        path: The ledger.
        alone: True to write; False to read, which several processes may do at once.

    Raises:
        EngineError: Another process held the ledger for ``PATIENCE`` seconds, or the ledger's folder can't be written.
    """
    descriptor = _open_lock(path)
    try:
        end = time.monotonic() + PATIENCE
        while not system.locked(descriptor, alone=alone):
            if time.monotonic() > end:
                raise EngineError(f"ledger {path}: another process uses it; wait until that one ends")
            time.sleep(PAUSE)
        _tighten_modes(path)
        yield
    finally:
        os.close(descriptor)  # and with it the lock


def is_default_writable() -> bool:
    """Return whether the user's own ledger has a place that can be written."""
    try:
        os.close(_open_lock(default_path()))
    except EngineError:
        return False
    return True


def _open_lock(path: Path) -> int:
    """Open the lock file beside a ledger, and return its descriptor.

    Raises:
        EngineError: The ledger's folder can't be written.
    """
    try:
        if not path.parent.is_dir():  # a folder that is there keeps its mode
            path.parent.parent.mkdir(parents=True, exist_ok=True)
            path.parent.mkdir(mode=0o700, exist_ok=True)
        return system.open_descriptor(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise EngineError(
            f"ledger {path}: {error.strerror}; set {VARIABLE}, or ledger.database, to a place that can be written"
        ) from error


def _tighten_modes(path: Path) -> None:
    """Remove other users' rights to the ledger's files, which a copied ledger may have."""
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
# The file of a ledger, attached when needed.
#
# Beside the events it holds no more than guarantees need: keyed hashes of the records of each release, or of some of
# them (``sketches``), of every id and person (``names``), and the records that are followed from release to release
# (``subjects``). The key is that of ``key_of``.

LEDGER = "ledger"  # the name under which the ledger is attached
EVENTS, SKETCHES, NAMES, SUBJECTS = (table(name, LEDGER) for name in ("events", "sketches", "names", "subjects"))
COLUMNS = {
    EVENTS: "event BIGINT, kind VARCHAR, content VARCHAR",
    SKETCHES: "number INTEGER, hash BIGINT, records BIGINT",
    NAMES: "number INTEGER, kind VARCHAR, name BIGINT",
    SUBJECTS: "number INTEGER, id VARCHAR, trace BIGINT, bid INTEGER, value VARCHAR",
}


@contextmanager
def open_for_reading(db: Container, path: Path, *, before: int | None = None) -> Iterator[Book]:
    """Attach a ledger as database ``ledger`` for reading, and yield its contents; an empty book if it does not exist.

    Args:
        db: The session.
        path: The ledger.
        before: The number of a release; the book is as it was before that release. None for the present book.

    Raises:
        EngineError: The ledger is in use, damaged or not a ledger.
    """
    if not path.exists():  # nor its folder, perhaps, which nobody need be able to make
        yield Book()
        return
    with lock_ledger(path, alone=False):
        db.attach(path, LEDGER, read_only=True)
        try:
            yield Book() if _is_empty(db) else read_book(db, path, before)
        finally:
            db.detach(LEDGER)


@contextmanager
def open_for_writing(db: EngineSession, path: Path) -> Iterator[Book]:
    """Attach a ledger as database ``ledger`` for writing, and yield its contents; create it if it does not exist.

    Changes should be made inside ``db.in_transaction``, so that they are made together or not at all.
    """
    with lock_ledger(path, alone=True), private:
        is_new = not path.exists()
        db.attach(path, LEDGER, read_only=False)
        try:
            if is_new or _is_empty(db):
                fields = {"format": FORMAT, "privsql": __version__, "key": key_file(key_of(path)).reference}
                with db.in_transaction():
                    for name, columns in COLUMNS.items():
                        db.define_table(name.name, [Field(*one.split()) for one in columns.split(", ")], into=LEDGER)
                    write_events(db, Book(), ("ledger", fields))
            yield read_book(db, path)
        finally:
            db.detach(LEDGER)


def replay_wal(path: Path) -> None:
    """Complete the last transaction of a killed process if it was committed, and remove the files that it left."""
    with suppress(EngineError):  # where it can't be written, it is read as it is
        if list_unfinished_keys(path):
            with lock_ledger(path, alone=True):
                for half in list_unfinished_keys(path):
                    half.unlink(missing_ok=True)
        if log_of(path).exists():
            with open_scratch() as db, open_for_writing(db, path):
                pass


def _is_empty(db: Container) -> bool:
    """Return whether the attached file has no tables, because it is new or the process that created it was killed."""
    try:
        db.list_fields(EVENTS)
    except UsageError:
        return not db.list_objects(LEDGER)
    return False


def read_book(db: Container, path: Path, before: int | None = None) -> Book:
    """Read the attached ledger.

    Args:
        db: The session that has attached it.
        path: The file, for messages.
        before: The number of a release; the book is as it was before that release. None for the present book.

    Raises:
        EngineError: The file is not a ledger, or can't be read.
    """
    events = exp.select(column("kind"), column("content")).from_(EVENTS).order_by(column("event"))
    try:
        return Book.from_rows([(kind, text) for kind, text in db.rows(events)], before)
    except UsageError as error:  # there is no such table
        raise EngineError(
            f"{path} is no ledger of this version of privsql; set PRIVSQL_LEDGER to another file"
        ) from error
    except EngineError as error:
        raise EngineError(f"{path}: {error}") from error


def write_events(db: EngineSession, known: Book, *events: Event) -> None:
    """Append events (lines such as a release, a withdrawal or a cap) to the attached ledger.

    Args:
        db: The session that has attached the ledger for writing.
        known: The book as it was read; the new events are numbered after its events.
        *events: The events.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    numbers = list(range(known.events, known.events + len(events)))
    texts = [json.dumps({"at": now, **what}) for _, what in events]
    rows = pa.table({"event": numbers, "kind": [kind for kind, _ in events], "content": texts})
    db.register_arrow("events", rows)
    db.append_rows(EVENTS.name, all_rows(temp_table("events")), into=LEDGER)
    db.drop("events")


def add_rows(db: EngineSession, into: exp.Table, number: int, rows: exp.Expr) -> None:
    """Append rows to a table of the attached ledger, marked with the number of their release."""
    names = [one.split()[0] for one in COLUMNS[into].split(", ")[1:]]
    db.append_rows(into.name, exp.select(exp.Literal.number(number), *map(column, names)).from_(rows), into=LEDGER)


def rows_of(entry: LedgerEntry, rows: exp.Table) -> exp.Select:
    """Return the query for the rows of one release in a table of the attached ledger.

    Args:
        entry: The release.
        rows: The table.
    """
    return all_rows(rows).where(column("number").eq(entry.number))


def known_values(entries: Sequence[LedgerEntry], kind: str) -> exp.Query:
    """Return the query for the (id, sensitive value) of all records that some releases hold.

    With these values, ``verify`` checks what the releases reveal together.

    Args:
        entries: The releases.
        kind: The SQL type to which the values are cast.
    """
    value = exp.cast(column("value"), kind, dialect=DIALECT)
    return fill("ledger/values", {"subjects": SUBJECTS, "among": select_releases(entries), "value": value})


def select_releases(entries: Sequence[LedgerEntry]) -> exp.Expr:
    """Return the condition for queries in ``sql/ledger`` that restricts them to the given releases."""
    return column("number", "s").isin(*(exp.Literal.number(entry.number) for entry in entries))
