"""Decide by groups or by budget whether one more release of the same people may follow."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql.engine.remote import positions
from privsql.engine.sqlfiles import Holes, column, fill, temp
from privsql.errors import GuaranteeError, InfeasibleError, UsageError
from privsql.exact import text
from privsql.keyed_random import system_key
from privsql.mechanisms.contract import Budget, Groups
from privsql.mechanisms.registry import of
from privsql.releases.ledger.book import (
    as_plain_json,
    key_of,
    open_for_reading,
    open_for_writing,
    secret,
    spent,
    subjects_query,
    write_events,
    write_subjects,
)
from privsql.releases.ledger.publication import Publication, contents, numbered, request, settled
from privsql.releases.ledger.subjects import TRACES, Subjects
from privsql.source.records import listed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from privsql.keyed_random import Key
    from privsql.mechanisms.contract import Columns
    from privsql.releases.ledger.book import Book, Entry, Event
    from privsql.releases.ledger.evidence import Verdict
    from privsql.source.spec import Spec

# Budget ---------------------------------------------------------------------------------------------------------------
# The privacy budget of a source: what its differentially private releases have spent together, and how much they may.
#
# Releases of the same records compose: their epsilons add up, whatever each of them asks. What was spent, and the most
# that may be, stand in the ledger: a specification can set that cap or lower it, never raise it.


def require_names(spec: Spec) -> None:
    """``UsageError`` for a cap on what the publisher spends on people whom nothing names."""
    if spec.source.id is None and spec.source.person is None:
        raise UsageError(
            "a budget needs source.id or source.person: by its name alone a source can't be capped, for a copy under "
            "another name, with a record less, would have a budget of its own"
        )


@dataclass
class BudgetLedger(Publication):
    """A publication that spends a budget, which is gone before anything is drawn, whatever becomes of the release."""

    subjects: Subjects = field(init=False)
    verdicts: dict[int, Verdict] = field(default_factory=dict, init=False)
    before: Fraction = field(default=Fraction(0), init=False)  # spent by earlier releases
    cap: Fraction | None = field(default=None, init=False)
    fresh: Key = field(default_factory=system_key, init=False)

    @property
    def epsilon(self) -> Fraction:
        """What this release spends."""
        asked = self.wish.spec.mechanism
        composition = of(asked.kind).composition
        if not isinstance(composition, Budget):
            raise TypeError(asked.kind)
        return composition.epsilon(asked)

    @property
    def key(self) -> Key:
        """For what is not noise; the noise of a release is never repeated."""
        return self.wish.key or self.fresh

    def look(self) -> None:
        """What was spent, and what may be."""
        self.subjects = Subjects(self.db, self.source, self.wish, values=False)
        with open_for_reading(self.db, self.wish.ledger) as book:
            self._compared(book)

    def check(self) -> None:
        """Spend the release's epsilon; what can be refused for other reasons is refused before.

        ``InfeasibleError`` if it would spend more than is left, which nothing can allow; ``GuaranteeError`` if these
        records were published under another name.
        """
        of(self.wish.spec.mechanism.kind).plan(self.db, self.source, self.wish.spec.mechanism)
        self.subjects = Subjects(self.db, self.source, self.wish, values=False)
        with open_for_writing(self.db, self.wish.ledger) as book:
            others = self._compared(book)
            self._must_fit(len(book.of_source(self.wish.source)) + len(others))
            if others and not self.wish.allow:
                last, why = others[-1], self.verdicts[others[-1].number].why
                raise GuaranteeError(
                    f"these records are in {last.shown} already, under another name ({why}), and share its budget; "
                    f"it is source.name = {listed(last.source)!r}"
                )
            self.subjects.names.prepare_marks()
            self._spend(book, others)
        self.db.drop("traces")

    def _compared(self, book: Book) -> list[Entry]:
        """Take what was spent and the cap from a book, attached; releases of these records under another name."""
        self.replaced = self.wish.replaced(book)
        own, private = book.of_source(self.wish.source), [one for one in book.entries if one.epsilon is not None]
        self.verdicts = self.subjects.judged([entry for entry in private if entry not in own])
        others = [entry for entry in private if entry.number in self.verdicts and self.verdicts[entry.number].same]
        self.before = spent([*own, *others])
        given = self.wish.spec.ledger.epsilon if self.wish.spec.ledger is not None else None
        caps = [book.cap(self.wish.source), *(book.cap(entry.source) for entry in others), given]
        self.cap = min((cap for cap in caps if cap is not None), default=None)
        if self.cap is not None:
            require_names(self.wish.spec)
        return others

    def _must_fit(self, releases: int) -> None:
        if self.cap is None or self.before + self.epsilon <= self.cap:
            return
        left = max(self.cap - self.before, Fraction(0))
        raise InfeasibleError(
            f"epsilon {text(self.epsilon)} is asked for, but {text(left)} is left of the budget {text(self.cap)}: "
            f"{releases} releases have spent {text(self.before)}; 'privsql ledger cap' raises it",
            {"left": text(left), "spent": text(self.before), "budget": text(self.cap)},
        )

    def _spend(self, book: Book, others: list[Entry]) -> None:
        """Write the release down, without a file yet, and the cap if this specification sets or lowers it."""
        allowed = [f"{entry.shown} of {listed(entry.source)}" for entry in others]
        composes = f"epsilon {text(self.epsilon)}; all together {text(self.before + self.epsilon)}"
        limit = "no cap is set" if self.cap is None else f"of at most {text(self.cap)}"
        said = [f"composition allowed by the publisher: these records are in {one}" for one in allowed]
        self.said = [f"{composes}, {limit}", *said]
        told = {"epsilon": text(self.epsilon), "composes": composes, "allowed": bool(others)}
        told["replaces"] = self.replaced and self.replaced.number
        self.entry = self.wish.entry(book.next, key=self.key.reference, **self.subjects.summed, **told)
        events: list[Event] = [self.entry.as_event()]
        if self.cap is not None and self.cap != book.cap(self.wish.source):
            events.append(("cap", {"source": list(self.wish.source), "epsilon": text(self.cap), "by": "specification"}))
        with self.db.together():
            nothing = exp.cast(exp.null(), "INTEGER")
            write_subjects(self.db, self.entry.number, TRACES, nothing)
            self.subjects.names.write_marks(self.entry.number)
            write_events(self.db, book, *events)

    def read(self, tables: Columns) -> None:
        """Nothing: no release is made twice."""

    def record(self, made: Path, facts: dict[str, Any]) -> None:  # noqa: ARG002 (of any composition)
        """Write down which file it has become."""
        if self.entry is None:
            raise TypeError("nothing was spent")
        self.entry = replace(self.entry, digest=self.wish.digest(made))
        with open_for_writing(self.db, self.wish.ledger) as book, self.db.together():
            write_events(self.db, book, ("made", {"number": self.entry.number, "digest": self.entry.digest}))

    def told(self) -> dict[str, Any]:
        """With what is spent, this release among it once it is written down."""
        total = self.before + (self.epsilon if self.entry is not None else 0)
        cap = None if self.cap is None else text(self.cap)
        return {**super().told(), "epsilon": text(self.epsilon), "spent": text(total), "cap": cap}


# Groups of releases ---------------------------------------------------------------------------------------------------
# Releases of the same people by mechanisms that promise nothing of two, or something of chains of releases alone.
#
# A guarantee covers a chain of releases that agree in their mechanism's terms and in the columns. The same release
# again tells nothing new. Anything else is refused, unless composition is allowed, which the release then says of
# itself.

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
        with open_for_reading(self.db, self.wish.ledger) as book:
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
        with open_for_reading(self.db, self.wish.ledger):
            found = [
                self.db.arrow(fill("ledger/earlier", holes | {"members": subjects_query(entry).subquery()}))
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
        with open_for_writing(self.db, self.wish.ledger) as book:
            late = settled(book)
            self._still_holds(book.after(late))
            self.entry = self.wish.entry(book.next, **told)
            with self.db.together():
                write_subjects(self.db, self.entry.number, assigned, bid)
                self.subjects.names.write_marks(self.entry.number)
                write_events(self.db, book, *late, self.entry.as_event())
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
    return as_plain_json([mechanism.kind, mechanism.composition.terms(asked), columns, *coarser])
