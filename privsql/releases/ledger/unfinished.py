"""Releases whose process was killed after it had written them down: whether they have come into place.

Before a release comes into place it is in the ledger; that it has, and that what it replaced is withdrawn, is written
down afterwards. In between a process may be killed. What lies at the target then tells which it was, and what does not
tell is taken to be out.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from privsql.errors import PrivsqlError
from privsql.releases.draft import sweep
from privsql.releases.identity import digest, exists

if TYPE_CHECKING:
    from privsql.releases.ledger.book import Book, Entry, Event


def settled(book: Book) -> list[Event]:
    """The events that killed processes have not written."""
    return [event for entry in book.live if not entry.out for event in _settled(book, entry)]


def _settled(book: Book, entry: Entry) -> list[Event]:
    target = Path(entry.target)
    sweep(target)
    if Path(entry.draft).exists():
        return []  # its process lives
    try:
        there = digest(target) if exists(target) else ""
    except (OSError, PrivsqlError):
        return []
    if there == entry.digest:
        return came(entry)
    before = next((one for one in book.entries if one.number == entry.replaces), None)
    if before is not None and there == before.digest:
        return [withdrawn(entry.number, "never came into place")]
    return []


def came(entry: Entry) -> list[Event]:
    """That a release has come into place, where what it replaces is withdrawn."""
    events: list[Event] = [] if entry.out else [("out", {"number": entry.number})]
    if entry.replaces is not None:
        events.append(withdrawn(entry.replaces, f"replaced by release {entry.number}"))
    return events


def withdrawn(number: int, why: str) -> Event:
    """That a release is withdrawn."""
    return "withdrawn", {"number": number, "why": why}
