"""What stands in a ledger: a row of events, in which nothing is ever changed or taken away.

``release`` a release with all that is known of it; ``made`` its file, where that came later; ``out`` that it has come
into place; ``withdrawn`` one that never left the house; ``cap`` the most that a source may spend; ``elsewhere`` a
source whose releases stand in another ledger.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsql.engine.names import fold
from privsql.errors import EngineError
from privsql.releases.ledger.evidence import Histogram, Rows
from privsql.source.names import same_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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
