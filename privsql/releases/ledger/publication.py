"""One publication on its way through the ledger: its request, its content, and whether it came into place."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsql.engine.files import fold_name
from privsql.engine.open import open_locked
from privsql.errors import PrivsqlError
from privsql.mechanisms.contract import BudgetComposition
from privsql.releases.contents import digest_release
from privsql.releases.draft import HOLDER, MAIN, digest_tables, is_occupied, sweep_drafts
from privsql.releases.ledger.book import (
    LedgerEntry,
    find_promised_person,
    list_column_names,
    list_published,
    open_for_writing,
    write_events,
)
from privsql.source.records import known_as
from privsql.source.targets import Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from privsql.engine.database import EngineSession, Relations
    from privsql.keyed_random import Key
    from privsql.mechanisms.contract import Columns
    from privsql.model.parameters import Facts
    from privsql.model.records import Records
    from privsql.releases.ledger.book import Book, Event
    from privsql.source.spec import Spec
    from privsql.source.table import PersonChoice

# Unfinished releases --------------------------------------------------------------------------------------------------
# Releases whose process was killed after it had written them into the ledger: did they come into place?
#
# A release is written into the ledger before it comes into place; its arrival, and the withdrawal of what it replaced,
# afterwards. If a process was killed in between, the digest of the target decides. A release without a decision counts
# as distributed.


def find_unwritten_events(book: Book) -> list[Event]:
    """Return the events that killed processes have not written."""
    return [event for entry in book.live_entries if not entry.out for event in _settle_entry(book, entry)]


def _settle_entry(book: Book, entry: LedgerEntry) -> list[Event]:
    target = Target.parse(Path(entry.target))
    sweep_drafts(target)
    if Path(entry.draft).exists():
        return []  # its process lives
    try:
        there = digest_release(target) if is_occupied(target) else ""
    except (OSError, PrivsqlError):
        return []
    if there == entry.digest:
        return make_arrival_events(entry)
    before = next((one for one in book.entries if one.number == entry.replaces), None)
    if before is not None and there == before.digest:
        return [make_withdrawal(entry.number, "never came into place")]
    return []


def make_arrival_events(entry: LedgerEntry) -> list[Event]:
    """Return the events of a release that has come into place; what it replaces is withdrawn."""
    events: list[Event] = [] if entry.out else [("out", {"number": entry.number})]
    if entry.replaces is not None:
        events.append(make_withdrawal(entry.replaces, f"replaced by release {entry.number}"))
    return events


def make_withdrawal(number: int, why: str) -> Event:
    """Return the event of a withdrawn release."""
    return "withdrawn", {"number": number, "why": why}


# Requests -------------------------------------------------------------------------------------------------------------
# The request of a publication to the ledger, and the entry that it becomes.


@dataclass(frozen=True)
class PublicationRequest:
    """A publication: where its ledger lies (None: nowhere), its key if its publisher names one, and what it may do.

    ``allow``: no guarantee need cover it and what was published before; ``replaces``: digest of the release at its
    target; ``choice``: how one record of each person is chosen, if that is decided elsewhere; ``repeat``: what it
    replaces counts as distributed; ``digest``: of the release, where no file becomes it.
    """

    spec: Spec
    path: Path | None
    key: Key | None = None
    allow: bool = False
    replaces: str | None = None
    choice: PersonChoice | None = None
    repeat: bool = False
    digest: str | None = None

    @property
    def ledger_path(self) -> Path:
        """Return the path of the ledger; ``ValueError`` without one."""
        if self.path is None:
            raise ValueError("this publication keeps no ledger")
        return self.path

    @property
    def source_names(self) -> tuple[str, ...]:
        """Return the names of the source."""
        return known_as(self.spec.source)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the published columns."""
        return list_published(self.spec.columns.model_dump(mode="json"))

    @property
    def column_names(self) -> tuple[str, ...]:
        """Return the names of the published columns in the source."""
        return list_column_names(self.spec.columns.model_dump(mode="json"))

    @property
    def promised_person(self) -> str | None:
        """Return the column of persons of whom the release promises something; None for records."""
        return find_promised_person(vars(self.spec.source))

    @property
    def plain_spec(self) -> dict[str, Any]:
        """Return the specification without where it lies and goes, as plain data."""
        place: dict[str, Any] = {"ledger": True, "release": {"to", "schema_", "purpose", "recipient", "contact"}}
        parts: dict[str, Any] = json.loads(self.spec.model_dump_json(exclude=place))
        source = self.spec.source
        parts["source"] = {"table": source.table, "query": source.query, "id": source.id, "name": source.name}
        more = {"person": source.person, "persons": source.persons}
        parts["source"] |= more if source.person is not None else {}
        parts["source"] |= {"id_space": source.id_space} if source.id_space is not None else {}
        return parts

    @property
    def target(self) -> str:
        """Return where the release goes."""
        return str(self.spec.target.resolve())

    def digest_target(self, path: Path) -> str:
        """Return the digest of the release at its target, from the file or folder that becomes it."""
        if self.digest is None and self.spec.target.catalog is not None:
            with open_locked({HOLDER: path}, home=HOLDER) as db:
                tables = [name for kind, _, name, _ in db.list_relations(HOLDER) if kind == "table"]
                return digest_tables(db, tables, HOLDER, ordered=False)
        return self.digest or digest_release(Target(path, None if self.spec.release.schema_ is None else MAIN))

    def find_replaced(self, book: Book) -> LedgerEntry | None:
        """Return the release at the target, if the ledger has it; of several alike, the one with this target."""
        alike = [entry for entry in book.live_entries if self.replaces is not None and entry.digest == self.replaces]
        there = [entry for entry in alike if entry.target == self.target]
        return next(reversed(there or alike[:1] if len(alike) == 1 else there), None)

    def make_entry(self, number: int, **fields: Any) -> LedgerEntry:
        """Return the entry in the ledger; ``fields``: what the specification does not tell."""
        spec = self.spec
        return LedgerEntry(
            number=number,
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            name=spec.name,
            target=self.target,
            mechanism=spec.mechanism.kind,
            algorithm=spec.mechanism.algorithm,
            subject=fold_name(spec.source.id or ""),
            spec=self.plain_spec,
            source=self.source_names,
            **fields,
        )


def extract_request(spec: dict[str, Any]) -> Any:
    """Return the parts of a specification that determine a release, besides the records and the key."""
    order = spec.get("release", {}).get("order") or "stream"
    return [spec["columns"], spec["mechanism"], *([order] if order != "stream" else [])]


# Publication ----------------------------------------------------------------------------------------------------------
# A publication with a ledger, for every kind of composition.


@dataclass
class Publication(ABC):
    """A publication in progress, with an engine that has its source; ``statements``: what the release must state."""

    db: EngineSession
    source: Records
    request: PublicationRequest
    statements: list[str] = field(default_factory=list, init=False)
    entry: LedgerEntry | None = field(default=None, init=False)  # as it was written down
    replaced: LedgerEntry | None = field(default=None, init=False)  # what it takes the place of
    changes: list[tuple[str, str]] = field(default_factory=list, init=False)  # ids of earlier records, and fates

    @property
    @abstractmethod
    def key(self) -> Key:
        """Return the key of all random choices, after ``require_covered``."""

    @property
    def must_bind_key(self) -> bool:
        """Return whether the key is one that must be bound to the records first, or these have to be hashed by it.

        One that is fresh, or follows from a ledger's key, serves these records alone; what is differentially private
        is drawn afresh.
        """
        is_repeatable = self.request.key is not None or self.source.order != "stream"
        return is_repeatable and not isinstance(self.request.spec.implementation.composition, BudgetComposition)

    @property
    def repeats(self) -> bool:
        """Return whether the ledger knows an earlier release beside which this one reveals nothing new."""
        return False

    @abstractmethod
    def compare_earlier(self) -> None:
        """Compare with what was released, and write nothing."""

    @abstractmethod
    def require_covered(self) -> None:
        """Compare, refuse what no guarantee covers, and spend the budget of the release."""

    def read_tables(self, db: Relations, tables: Columns) -> None:  # noqa: B027 (only what can be made again)
        """Take the digest of the tables of the release, which lie in database ``release``."""

    @abstractmethod
    def record_release(self, path: Path, facts: Facts) -> None:
        """Write the release down, before it comes into place."""

    def record_refusal(self) -> None:
        """Write down that what was spent has come to nothing."""
        if self.entry is not None:
            self._append_events([make_withdrawal(self.entry.number, "refused; what was drawn is spent")])

    def as_facts(self) -> dict[str, Any]:
        """Return the ledger's facts in the outcome of ``publish`` and ``plan``."""
        facts: dict[str, Any] = {"database": str(self.request.ledger_path), "source": list(self.request.source_names)}
        if self.entry is not None:
            facts |= {"release": self.entry.number, "composes": self.entry.composes}
        if self.replaced is not None:
            facts["withdrawn"] = self.replaced.number
        return facts

    @contextmanager
    def record_commit(self, path: Path, facts: Facts) -> Iterator[None]:
        """Write the release down; inside it comes into place, in which case the one that it replaces is withdrawn.

        What fails to come into place is withdrawn itself.
        """
        self.record_release(path, facts)
        out = False
        try:
            yield
            out = True
        finally:
            if self.entry is not None and out:
                self._append_events(make_arrival_events(self.entry))
            elif self.entry is not None and not _is_there(self.entry, self.request.spec.target):
                self._append_events([make_withdrawal(self.entry.number, "never came into place")])

    def _append_events(self, events: list[Event]) -> None:
        if events:
            with open_for_writing(self.db, self.request.ledger_path) as book, self.db.in_transaction():
                write_events(self.db, book, *events)


def _is_there(entry: LedgerEntry, target: Target) -> bool:
    try:
        return is_occupied(target) and digest_release(target) == entry.digest
    except PrivsqlError:
        return True  # a release whose place is unknown counts as out


def select_entries(entries: Sequence[LedgerEntry], numbers: Sequence[int]) -> list[LedgerEntry]:
    """Return the entries with some numbers."""
    return [entry for entry in entries if entry.number in numbers]
