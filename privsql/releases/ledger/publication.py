"""A publication and the ledger: what every kind of composition has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsql.errors import PrivsqlError
from privsql.mechanisms.contract import Budget
from privsql.mechanisms.registry import of
from privsql.releases.identity import digest, exists
from privsql.releases.ledger import storage
from privsql.releases.ledger.unfinished import came, withdrawn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from privsql.engine.database import Workshop
    from privsql.mechanisms.contract import Columns
    from privsql.model.records import Records
    from privsql.noise import Key
    from privsql.releases.ledger.book import Entry, Event
    from privsql.releases.ledger.wish import Wish


@dataclass
class Publication(ABC):
    """A release on its way, with an engine in which its source lies. ``said``: what it has to say of itself."""

    db: Workshop
    source: Records
    wish: Wish
    said: list[str] = field(default_factory=list, init=False)
    entry: Entry | None = field(default=None, init=False)  # as it was written down
    replaced: Entry | None = field(default=None, init=False)  # what it takes the place of

    @property
    @abstractmethod
    def key(self) -> Key:
        """What makes its random choices, after ``check``."""

    @property
    def binds(self) -> bool:
        """Whether the key is one that must be bound to the records first, or these have to be hashed by it.

        One that is fresh, or follows from a ledger's key, serves these records alone; what is differentially private
        is drawn afresh.
        """
        mechanism = of(self.wish.spec.mechanism.kind)
        kept = self.wish.key is not None or self.source.order != "stream"
        return kept and not isinstance(mechanism.composition, Budget)

    @abstractmethod
    def look(self) -> None:
        """Compare with what was released, and write nothing."""

    @abstractmethod
    def check(self) -> None:
        """The same; refuses what no guarantee covers, and spends what the release will have spent."""

    @abstractmethod
    def read(self, tables: Columns) -> None:
        """Look at the tables of the release, which lie in database ``release``."""

    @abstractmethod
    def record(self, made: Path, facts: dict[str, Any]) -> None:
        """Write the release down, before it comes into place."""

    def refused(self) -> None:
        """Write down that what was spent has come to nothing."""
        if self.entry is not None:
            self._write([withdrawn(self.entry.number, "refused; what was drawn is spent")])

    def told(self) -> dict[str, Any]:
        """What ``publish`` and ``plan`` say of it."""
        shown: dict[str, Any] = {"database": str(self.wish.ledger), "source": list(self.wish.source)}
        if self.entry is not None:
            shown |= {"release": self.entry.number, "composes": self.entry.composes}
        if self.replaced is not None:
            shown["withdrawn"] = self.replaced.number
        return shown

    @contextmanager
    def recorded(self, made: Path, facts: dict[str, Any]) -> Iterator[None]:
        """Write the release down; inside it comes into place, in which case the one that it replaces is withdrawn.

        What fails to come into place is withdrawn itself.
        """
        self.record(made, facts)
        out = False
        try:
            yield
            out = True
        finally:
            if self.entry is not None and out:
                self._write(came(self.entry))
            elif self.entry is not None and not _is_there(self.entry):
                self._write([withdrawn(self.entry.number, "never came into place")])

    def _write(self, events: list[Event]) -> None:
        if events:
            with storage.writing(self.db, self.wish.ledger) as book, self.db.together():
                storage.write(self.db, book, *events)


def _is_there(entry: Entry) -> bool:
    target = Path(entry.target)
    try:
        return exists(target) and digest(target) == entry.digest
    except PrivsqlError:
        return True  # what can't be told is out


def numbered(entries: Sequence[Entry], numbers: Sequence[int]) -> list[Entry]:
    """The entries with some numbers."""
    return [entry for entry in entries if entry.number in numbers]
