"""Releases of the same people by mechanisms that promise nothing of two, or something of chains of releases alone.

A guarantee covers a chain of releases that agree in their mechanism's terms and in the columns. The same release again
tells nothing new. Anything else is refused, unless composition is allowed, which the release then says of itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql.engine.positions import positions
from privsql.engine.sqlfiles import Holes, column, fill, temp
from privsql.errors import GuaranteeError
from privsql.mechanisms.contract import Groups
from privsql.mechanisms.registry import of
from privsql.releases.ledger import storage
from privsql.releases.ledger.content import contents
from privsql.releases.ledger.names import TRACES
from privsql.releases.ledger.place import key_of, secret
from privsql.releases.ledger.publication import Publication, numbered
from privsql.releases.ledger.subjects import Subjects
from privsql.releases.ledger.unfinished import settled
from privsql.releases.ledger.wish import request
from privsql.source.names import listed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from privsql.mechanisms.contract import Columns
    from privsql.noise import Key
    from privsql.releases.ledger.book import Book, Entry
    from privsql.releases.ledger.evidence import Verdict

SHOWN = 5  # records that a message names


@dataclass(frozen=True)
class Found:
    """What a ledger says of a publication.

    ``same``: numbers of the earlier releases of these people; ``chain``: a guarantee covers them and this one;
    ``again``: the release that this one repeats; ``reason``: why nothing covers them, None if something does.
    """

    fresh: int
    same: tuple[int, ...] = ()
    chain: bool = False
    again: int | None = None
    composes: str = "the first release"
    reason: str | None = None


@dataclass
class GroupLedger(Publication):
    """A publication whose guarantee is for one release, or for a chain of them."""

    book: Book = field(init=False)
    found: Found = field(init=False)
    subjects: Subjects = field(init=False)
    verdicts: dict[int, Verdict] = field(default_factory=dict, init=False)
    content: dict[str, str] = field(default_factory=dict, init=False)

    def look(self) -> None:
        """Compare with what was released; tells the source of earlier groups that a guarantee takes in."""
        chains = isinstance(of(self.wish.spec.mechanism.kind).composition, Groups)
        self.subjects = Subjects(self.db, self.source, self.wish, values=chains)
        with storage.reading(self.db, self.wish.ledger) as book:
            self.book = book.after(settled(book))
            self.replaced = self.wish.replaced(self.book)
            self.found = self._compared(self.book)
        if self.found.chain:
            chain = numbered(self.book.entries, self.found.same)
            self.source.history.releases = len(chain)
            self.source.history.fetch = lambda last: self._earlier(chain[-last:])
        if self.found.reason is not None:
            self.said = [f"composition allowed by the publisher: {self.found.reason}"]

    def check(self) -> None:
        """The same; ``GuaranteeError`` where no guarantee covers both and composition is not allowed."""
        self.look()
        self.subjects.names.prepare_marks()
        if self.found.reason is not None and not self.wish.allow:
            last = max(self.found.same)
            raise GuaranteeError(
                f"{self.found.reason}; --allow-composition publishes all the same, and says so in the release; "
                f"'privsql ledger withdraw {last}' takes back one that never left the house"
            )

    @property
    def key(self) -> Key:
        """The publisher's, or one for these records and this request: made again, it is the same release."""
        return self.wish.key or self._derived()

    def _derived(self) -> Key:
        rows = self.subjects.rows
        asked = json.dumps(request(self.wish.plain), sort_keys=True)
        return secret(self.wish.ledger).derived(rows.records, rows.fingerprint, asked)

    # What the ledger says ---

    def _compared(self, book: Book) -> Found:
        """What a book, attached, says of this publication."""
        live = [entry for entry in book.live if entry.epsilon is None and entry != self.replaced]
        self.verdicts = self.subjects.judged(live)
        found = [entry for entry in live if self.verdicts[entry.number].same]
        same = [entry for entry in found if entry.is_of(self.wish.source)]
        others = [entry for entry in found if entry not in same]
        fresh = self.subjects.fresh([entry for entry in same if entry.subject])
        if not same and not others:
            return Found(fresh)
        numbers = tuple(entry.number for entry in (*same, *others))
        chain = self._chain(same) if not others else None
        changed = self.subjects.changed(same[-1]) if chain else []
        if chain and not changed:
            return Found(fresh, numbers, chain=True, composes=chain)
        again = next((entry for entry in same if self._repeats(entry)), None)
        if again is not None and not self.wish.allow:
            return Found(fresh, numbers, again=again.number, composes="a repeat of an earlier release")
        reason = self._reason(same, others, changed)
        return Found(fresh, numbers, composes=f"composition allowed by the publisher: {reason}", reason=reason)

    def _chain(self, same: Sequence[Entry]) -> str | None:
        """What the releases and this one guarantee together; None unless they agree, and say who is in which group."""
        asked = self.wish.spec.mechanism
        composition = of(asked.kind).composition
        if not isinstance(composition, Groups) or not self.subjects.named:
            return None
        if self._is_of_records_after(same):
            return None
        own = _terms(self.wish.plain)
        if any(entry.allowed or not entry.subject or _terms(entry.spec) != own for entry in same):
            return None
        return composition.covered([*(entry.algorithm for entry in same), asked.algorithm])

    def _is_of_records_after(self, same: Sequence[Entry]) -> bool:
        """Whether this one may hold several records of a person where an earlier one has promised of persons."""
        return self.wish.person is None and any(entry.person is not None for entry in same)

    def _repeats(self, entry: Entry) -> bool:
        """Whether it was made of the same records by the same key, as the same was asked for."""
        if entry.rows != self.subjects.rows or request(entry.spec) != request(self.wish.plain):
            return False
        if self.wish.key is None and not key_of(self.wish.ledger).exists():
            return False
        return entry.key == self.key.reference

    def _reason(self, same: Sequence[Entry], others: Sequence[Entry], changed: Sequence[tuple[str, str]]) -> str:
        if changed:
            names = ", ".join(f"{name} ({fate})" for name, fate in changed[:SHOWN])
            more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
            one = self.wish.spec.source.persons == "one"
            why = "; persons = 'one' takes a record again only as long as it is there unchanged" if one else ""
            return f"records of earlier releases may not change: {self.wish.spec.source.id} {names}{more}{why}"
        last = (same or others)[-1]
        verdict = self.verdicts[last.number]
        if not same:
            return (
                f"these records are in {last.shown} already, under another name ({verdict.why}); it is "
                f"source.name = {listed(last.source)!r}, and no guarantee covers both"
            )
        chains = isinstance(of(self.wish.spec.mechanism.kind).composition, Groups)
        if chains and self.subjects.named and self._is_of_records_after(same):
            return f"{last.shown} has one record of each person, and without source.person this one may have more"
        if verdict.assumed:
            hint = "" if self.wish.spec.source.frame is None else "; a table of others has a source.name of its own"
            return f"{last.shown} is of this source, and {verdict.why}; no guarantee covers both{hint}"
        return f"these subjects are in {last.shown} already ({verdict.why}), and no guarantee covers both"

    def _earlier(self, entries: Sequence[Entry]) -> NDArray[np.int64]:
        """Group of every record in earlier releases (m, n), -1 where it was not in one."""
        holes: Holes = {"records": TRACES, "position": self.db.position("r")}
        with storage.reading(self.db, self.wish.ledger):
            found = [
                self.db.arrow(fill("ledger/earlier", holes | {"members": storage.subjects(entry).subquery()}))
                for entry in entries
            ]
        return np.stack([groups["bid"].to_numpy().astype(np.int64, copy=False) for groups in found])

    # Writing ---

    def read(self, tables: Columns) -> None:
        """A fingerprint of every table: the same release again has the same."""
        self.content = contents(self.db, tables, "release")

    def record(self, made: Path, facts: dict[str, Any]) -> None:
        """Write the release down, in one step; ``GuaranteeError`` if another one came meanwhile, or it is no repeat."""
        held, groups = int(facts.get("held_back", 0)), self.source.history.groups
        told = {
            "digest": self.wish.digest(made),
            "key": self.key.reference,
            "content": self.content,
            **self.subjects.summed,
        }
        told |= {"records": self.source.records - held, "fresh": self.found.fresh - held, "held_back": held}
        told |= {"composes": self.found.composes, "allowed": self.found.reason is not None}
        assigned: exp.Table | exp.Subquery = TRACES
        bid: exp.Expr = exp.cast(exp.null(), "INTEGER")
        if self.subjects.named and groups is not None:
            self.db.put("positions", positions(groups))
            assigned, bid = self.db.matched(TRACES, temp("positions")).subquery(), column("bid", "a")
        told |= {"replaces": self.replaced and self.replaced.number, "draft": str(made.parent.resolve()), "out": False}
        with storage.writing(self.db, self.wish.ledger) as book:
            late = settled(book)
            self._still_holds(book.after(late))
            self.entry = self.wish.entry(book.next, **told)
            with self.db.together():
                storage.write_subjects(self.db, self.entry.number, assigned, bid)
                self.subjects.names.write_marks(self.entry.number)
                storage.write(self.db, book, *late, self.entry.as_event())
        self.db.drop("positions", "traces")

    def _still_holds(self, book: Book) -> None:
        """``GuaranteeError`` if what was found no longer holds, or a repeat has come out otherwise."""
        if book.events != self.book.events and self._compared(book) != self.found:
            raise GuaranteeError("another process has published these subjects meanwhile; publish again")
        again = numbered(book.entries, (self.found.again or 0,))
        if again and again[0].content != self.content:
            raise GuaranteeError(
                f"{again[0].shown} is of the same records, and has come out otherwise than it did (another version, or "
                "a search that ran out of time); no guarantee covers both"
            )


def _terms(spec: dict[str, Any]) -> Any:
    """What must agree for a guarantee over several releases; None if the mechanism has none."""
    mechanism = of(spec["mechanism"]["kind"])
    if not isinstance(mechanism.composition, Groups):
        return None
    asked = mechanism.parameters.model_validate(spec["mechanism"])
    columns = [spec["columns"][key] for key in ("quasi_identifiers", "sensitive")]
    coarser = [spec["columns"][key] for key in ("bins", "levels", "others") if key in spec["columns"]]
    return storage.plain([mechanism.kind, mechanism.composition.terms(asked), columns, *coarser])
