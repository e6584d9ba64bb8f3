"""The privacy budget of a source: what its differentially private releases have spent together, and how much they may.

Releases of the same records compose: their epsilons add up, whatever each of them asks. What was spent, and the most
that may be, stand in the ledger: a specification can set that cap or lower it, never raise it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from privsql.errors import GuaranteeError, InfeasibleError, UsageError
from privsql.exact import text
from privsql.mechanisms.contract import Budget
from privsql.mechanisms.registry import of
from privsql.noise import system_key
from privsql.releases.ledger import storage
from privsql.releases.ledger.book import spent
from privsql.releases.ledger.names import TRACES
from privsql.releases.ledger.publication import Publication
from privsql.releases.ledger.subjects import Subjects
from privsql.source.names import listed

if TYPE_CHECKING:
    from pathlib import Path

    from privsql.mechanisms.contract import Columns
    from privsql.noise import Key
    from privsql.releases.ledger.book import Book, Entry, Event
    from privsql.releases.ledger.evidence import Verdict
    from privsql.source.spec import Spec


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
        with storage.reading(self.db, self.wish.ledger) as book:
            self._compared(book)

    def check(self) -> None:
        """Spend the release's epsilon; what can be refused for other reasons is refused before.

        ``InfeasibleError`` if it would spend more than is left, which nothing can allow; ``GuaranteeError`` if these
        records were published under another name.
        """
        of(self.wish.spec.mechanism.kind).plan(self.db, self.source, self.wish.spec.mechanism)
        self.subjects = Subjects(self.db, self.source, self.wish, values=False)
        with storage.writing(self.db, self.wish.ledger) as book:
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
            storage.write_subjects(self.db, self.entry.number, TRACES, nothing)
            self.subjects.names.write_marks(self.entry.number)
            storage.write(self.db, book, *events)

    def read(self, tables: Columns) -> None:
        """Nothing: no release is made twice."""

    def record(self, made: Path, facts: dict[str, Any]) -> None:  # noqa: ARG002 (of any composition)
        """Write down which file it has become."""
        if self.entry is None:
            raise TypeError("nothing was spent")
        self.entry = replace(self.entry, digest=self.wish.digest(made))
        with storage.writing(self.db, self.wish.ledger) as book, self.db.together():
            storage.write(self.db, book, ("made", {"number": self.entry.number, "digest": self.entry.digest}))

    def told(self) -> dict[str, Any]:
        """With what is spent, this release among it once it is written down."""
        total = self.before + (self.epsilon if self.entry is not None else 0)
        cap = None if self.cap is None else text(self.cap)
        return {**super().told(), "epsilon": text(self.epsilon), "spent": text(total), "cap": cap}
