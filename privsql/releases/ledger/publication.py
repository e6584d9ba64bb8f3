"""Record one publication in the ledger: its request, its entry, and whether the release came into place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsql.engine.open import open_locked
from privsql.errors import EngineError, PrivsqlError
from privsql.keyed_random import Key, system_key
from privsql.mechanisms.base import BudgetComposition, Columns
from privsql.model.manifest import MOST_BESIDE, UNRECORDED, Composed, OtherRelease
from privsql.releases.contents import digest_release
from privsql.releases.draft import HOLDER, MAIN, digest_tables, is_occupied, sweep_drafts
from privsql.releases.ledger.book import Book, Event, LedgerEntry, LedgerRequest, open_for_writing, write_events
from privsql.source.targets import Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.engine.database import EngineSession, Relations
    from privsql.model.parameters import Facts
    from privsql.model.records import Records
    from privsql.releases.ledger.evidence import CommonNames
    from privsql.source.spec import Spec
    from privsql.source.table import PersonChoice

# Unfinished releases --------------------------------------------------------------------------------------------------
# Did a release come into place if its process was killed after it had written the release into the ledger?
#
# A release is written into the ledger before it comes into place. Its arrival is written afterwards, and so is the
# withdrawal of a release that no longer counts. If a process was killed in between, the digest of what lies at the
# target decides. A release counts as distributed as long as this is open.


def find_unwritten_events(book: Book) -> list[Event]:
    """Return the events that are missing from a ledger because a process was killed while it published a release.

    They record that the release came into place, or that it never did, as the files on disk show.
    """
    return [event for entry in book.live_entries if not entry.out for event in _settle_entry(book, entry)]


def _settle_entry(book: Book, entry: LedgerEntry) -> list[Event]:
    target = Target.parse(Path(entry.target))
    sweep_drafts(target)
    if Path(entry.draft).exists():
        return []  # the process that makes it is still running
    try:
        there = digest_release(target) if is_occupied(target) else ""
    except (OSError, PrivsqlError):
        return []
    if there == entry.digest:
        return make_arrival_events(entry)
    before = book.releases.get(entry.replaces or 0)
    if before is not None and there == before.digest:
        return [make_withdrawal(entry.number, "never came into place")]
    return []


def make_arrival_events(entry: LedgerEntry) -> list[Event]:
    """Return the lines (events) of a ledger which record that a release has been moved to its place.

    They also withdraw the release that it replaced, if nobody has that one or it has the same contents.
    """
    events: list[Event] = [] if entry.out else [("out", {"number": entry.number})]
    if entry.replaces is not None and entry.frees:
        events.append(make_withdrawal(entry.replaces, f"replaced by release {entry.number}"))
    return events


def make_withdrawal(number: int, why: str) -> Event:
    """Return the event to withdraw release ``number``, with the reason in words."""
    return "withdrawn", {"number": number, "why": why}


# Publication ----------------------------------------------------------------------------------------------------------
# A publication by its request, and what is the same for every kind of composition, and without a ledger.


@dataclass(frozen=True)
class PublicationRequest:
    """A publisher's request for a release.

    Attributes:
        spec: The specification.
        path: The ledger; None for no ledger.
        key: The publisher's key; None to derive one from the ledger's secret, or to draw one without a ledger.
        allow: Whether to publish even if no guarantee covers this and earlier releases.
        replaces: The digest of the release that lies at the target; None if nothing lies there.
        choice: How one record of each person is chosen, if that was decided before (see ``make_choice``); else None.
        repeat: Whether the release at the target may only be replaced by the same release.
        nobody_has_it: Whether the publisher says that nobody has received the release at the target.
        digest: The digest of the new release, if it does not become a file; None to compute it from the file.
        before: The number of an earlier release that is made again; the ledger is read as it was before that release.
            None to read all of it.
    """

    spec: Spec
    path: Path | None
    key: Key | None = None
    allow: bool = False
    replaces: str | None = None
    choice: PersonChoice | None = None
    repeat: bool = False
    nobody_has_it: bool = False
    digest: str | None = None
    before: int | None = None

    @property
    def ledger_path(self) -> Path:
        """Return the path of the ledger.

        Raises:
            ValueError: The publication has no ledger.
        """
        if self.path is None:
            raise ValueError("this publication keeps no ledger")
        return self.path

    @cached_property
    def stated(self) -> LedgerRequest:
        """Return the request in the form that the ledger stores."""
        return LedgerRequest.from_spec(self.spec)

    def digest_target(self, path: Path) -> str:
        """Return the digest (SHA-256) of the finished release, by which the ledger recognizes it later.

        Args:
            path: The file or folder in which the release was made, before it is moved to its place.
        """
        if self.digest is None and self.spec.target.catalog is not None:
            with open_locked({HOLDER: path}, home=HOLDER) as db:
                tables = [name for kind, _, name, _ in db.list_relations(HOLDER) if kind == "table"]
                return digest_tables(db, tables, HOLDER, ordered=False)
        return self.digest or digest_release(Target(path, None if self.spec.release.schema_ is None else MAIN))

    def find_replaced(self, book: Book) -> LedgerEntry | None:
        """Return the ledger's entry of the release that lies at the target.

        The result is None if the ledger does not know that release.

        The entry has the digest of that release. If several entries have it, one with the target's path is preferred.
        """
        alike = [entry for entry in book.live_entries if self.replaces is not None and entry.digest == self.replaces]
        there = [entry for entry in alike if entry.target == self.stated.target]
        certain = there or (alike if len(alike) == 1 else [])
        return certain[-1] if certain else None


@dataclass
class Publication(ABC):
    """The making of one release, as far as the ledger is concerned, in a session that has opened the source.

    It compares the source with earlier releases, chooses the key, and records the new release.

    Attributes:
        db: The session.
        source: The records.
        request: The request.
        statements: What the new release must state about other releases.
        few: Releases of other populations that share a few names with the source, each with these names.
        entry: The ledger's entry of the new release; None until it is recorded.
        replaced: The ledger's entry of the release that the new one replaces; None if there is none.
        changes: The ids of records that changed since an earlier release, each with "deleted" or "changed".
        fresh_key: The key of all random choices if the publisher gives none.
    """

    db: EngineSession
    source: Records
    request: PublicationRequest
    statements: list[Composed] = field(default_factory=list, init=False)
    few: list[tuple[LedgerEntry, CommonNames]] = field(default_factory=list, init=False)
    entry: LedgerEntry | None = field(default=None, init=False)
    replaced: LedgerEntry | None = field(default=None, init=False)
    changes: list[tuple[str, str]] = field(default_factory=list, init=False)
    fresh_key: Key = field(default_factory=system_key, init=False)

    @property
    def key(self) -> Key:
        """Return the key of all random choices: the publisher's or a fresh one. Call ``require_covered`` before."""
        return self.request.key or self.fresh_key

    @property
    def frees_replaced(self) -> bool:
        """Return whether the release that this one replaces can be forgotten, because nobody has received it.

        Otherwise it still counts as an earlier release of the same people. Call ``require_covered`` before.
        """
        return self.request.nobody_has_it

    @property
    def beside(self) -> list[OtherRelease]:
        """Return the other releases that the manifest of the new one must mention.

        These are the release that it replaces, unless nobody has received that one, and releases of other populations
        that share a few ids or persons with the source. Call ``require_covered`` before.
        """
        named = {OtherRelease(made=entry.day, relation=names.kind) for entry, names in self.few}
        if self.request.replaces is not None and not self.frees_replaced:
            made = None if self.replaced is None else self.replaced.day
            named.add(OtherRelease(made=made, relation="replaced"))
        return sorted(named, key=str)[-MOST_BESIDE:]

    @property
    def warnings(self) -> list[str]:
        """Return a warning for each other population that shares a few names with the source."""
        return [
            f"{names.common} of {names.names:,} {names.kind} are in {entry.label}, too, of another population: few "
            "enough to be chance, and the release says so; if these are the same people, say source.population = "
            f"{entry.population[0]!r}"
            for entry, names in self.few
        ]

    @property
    def must_bind_key(self) -> bool:
        """Return whether the key must be combined with a digest of the records before it is used.

        A publisher may use one key for several tables, and their random choices must be independent. The result is
        False if the mechanism draws differentially private noise, which is always drawn anew. It is also False for
        order ``stream`` (see ``Records.order``) if the publisher gives no key.
        """
        is_repeatable = self.request.key is not None or self.source.order != "stream"
        return is_repeatable and not isinstance(self.request.spec.implementation.composition, BudgetComposition)

    @property
    def repeats(self) -> bool:
        """Return whether the release repeats an earlier one, or a guarantee covers it together with earlier ones.

        Option ``repeat`` of ``publish`` requires this. It is False by default.
        """
        return False

    @abstractmethod
    def compare_earlier(self) -> None:
        """Compare the records with earlier releases, without writing anything."""

    @abstractmethod
    def require_covered(self) -> None:
        """Compare the records with earlier releases and spend the budget, if any.

        Raises:
            GuaranteeError: No guarantee covers the release and earlier ones.
            InfeasibleError: The budget is used up.
        """

    def read_tables(self, db: Relations, tables: Columns) -> None:  # noqa: B027 (only what can be made again)
        """Compute the digest of the release's tables, so that the ledger can later recognize a repetition.

        By default nothing is computed.

        Args:
            db: The engine that has the tables in its database ``release``.
            tables: The columns of each table.
        """

    @abstractmethod
    def record_release(self, path: Path, facts: Facts) -> None:
        """Record the release in the ledger, before it is moved to its target.

        Args:
            path: The file or folder of the draft.
            facts: The facts that the release states.
        """

    def record_refusal(self) -> None:
        """Withdraw the ledger's entry of a release that was refused after its budget had been recorded as spent."""
        if self.entry is not None:
            self._append_events([make_withdrawal(self.entry.number, "refused; what was drawn is spent")])

    def as_facts(self) -> dict[str, Any]:
        """Return by name what ``publish`` and ``plan`` report about the ledger: its file, population and releases."""
        stated = self.request.stated
        facts: dict[str, Any] = {"database": str(self.request.ledger_path), "population": list(stated.population)}
        if self.entry is not None:
            facts |= {"release": self.entry.number, "composes": self.entry.composes}
        if self.replaced is not None:
            facts["withdrawn" if self.frees_replaced else "replaced"] = self.replaced.number
        return facts

    @contextmanager
    def record_commit(self, path: Path, facts: Facts) -> Iterator[None]:
        """Record the release in the ledger, then let the body of the ``with`` move it into place.

        If the move succeeds, a replaced release that no longer counts (``frees_replaced``) is withdrawn. If it fails,
        the new entry is withdrawn.

        Raises:
            EngineError: The release is in place, but the ledger can't record that.
        """
        self.record_release(path, facts)
        out = False
        try:
            yield
            out = True
        finally:
            if self.entry is not None and out:
                try:
                    self._append_events(make_arrival_events(self.entry))
                except PrivsqlError as error:
                    counts = f"; release {self.entry.replaces} still counts" if self.entry.frees else ""
                    raise EngineError(
                        f"{self.request.spec.target} is written, and the ledger has it as release {self.entry.number}, "
                        f"but not that it came into place{counts}: {error}; make room there, and do not publish again"
                    ) from error
            elif self.entry is not None:
                target, there = self.request.spec.target, True
                with suppress(PrivsqlError):  # a release whose place is unknown counts as out
                    there = is_occupied(target) and digest_release(target) == self.entry.digest
                if not there:
                    self._append_events([make_withdrawal(self.entry.number, "never came into place")])

    def _append_events(self, events: list[Event]) -> None:
        if events:
            with open_for_writing(self.db, self.request.ledger_path) as book, self.db.in_transaction():
                write_events(self.db, book, *events)


@dataclass
class UnrecordedPublication(Publication):
    """A publication that no ledger records."""

    def compare_earlier(self) -> None:
        """Remember to state in the release that no ledger records it."""
        self.statements = [Composed(reason=UNRECORDED)]

    def require_covered(self) -> None:
        """Remember to state in the release that no ledger records it."""
        self.compare_earlier()

    def record_release(self, path: Path, facts: Facts) -> None:
        """Do nothing, because there is no ledger."""

    def as_facts(self) -> dict[str, Any]:
        """Return what ``publish`` and ``plan`` report about the ledger: that it is switched off."""
        return {"off": True}
