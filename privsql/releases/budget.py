"""The privacy budget of a source: what its differentially private releases have spent together, and how much they may.

It stands in the publisher's ledger (``releases.ledger``), beside the source and never in a release. Releases of the
same records compose: their epsilons add up, whatever each of them asks, so a ledger adds up all that it holds.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from privsql.errors import InfeasibleError
from privsql.exact import text
from privsql.mechanisms.contract import Budget
from privsql.mechanisms.registry import of
from privsql.releases import ledger as ledgers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from privsql.engine.database import Workshop
    from privsql.noise import Key
    from privsql.releases.ledger import Entry
    from privsql.source.spec import Spec


def spent(entries: Sequence[Entry]) -> Fraction:
    """The sum of the epsilons of the releases in a ledger."""
    return sum((_epsilon(one.spec["mechanism"]) for one in entries), Fraction(0))


def _epsilon(asked: dict[str, Any]) -> Fraction:
    """What a release spends, from the parameters that a ledger holds; nothing where releases compose otherwise."""
    mechanism = of(asked["kind"])
    if not isinstance(mechanism.composition, Budget):
        return Fraction(0)
    return mechanism.composition.epsilon(mechanism.parameters.model_validate(asked))


class Spending:
    """An open ledger, attached to the engine that publishes; with the interface of ``privsql.ledger.Ledger``."""

    composition: tuple[str, ...] = ()

    def __init__(self, db: Workshop, spec: Spec) -> None:
        self._db, self._spec = db, spec
        self.entries = ledgers.entries(db)
        self._epsilon = _epsilon(spec.mechanism.model_dump())
        self._before = spent(self.entries)

    def check(self, _key: Key, *, allow: bool) -> None:
        """``InfeasibleError`` if the release would spend more than is left, which nothing can allow."""
        del allow
        total = self._spec.ledger.epsilon if self._spec.ledger is not None else None
        if total is not None and self._before + self._epsilon > total:
            left = max(total - self._before, Fraction(0))
            raise InfeasibleError(
                f"epsilon {text(self._epsilon)} is asked for, but {text(left)} is left of the budget {text(total)}: "
                f"{len(self.entries)} releases have spent {text(self._before)}",
                {"left": text(left), "spent": text(self._before), "budget": text(total)},
            )

    def record(self, made: Path, key: Key, facts: dict[str, Any]) -> None:
        """Write the release down, before it comes into place: what was drawn is spent."""
        del facts
        total = text(self._before + self._epsilon)
        ledgers.write_entry(
            self._db,
            ledgers.Entry(
                number=max((one.number for one in self.entries), default=0) + 1,
                made=datetime.now(UTC).isoformat(timespec="seconds"),
                name=self._spec.name,
                target=str(self._spec.target),
                mechanism=self._spec.mechanism.kind,
                algorithm=self._spec.mechanism.algorithm,
                subject="",
                spec=ledgers.plain(self._spec),
                digest=ledgers.digest(made),
                key=key.reference,
                records=None,
                fresh=None,
                held_back=None,
                composes=f"epsilon {text(self._epsilon)}; all together {total}",
                allowed=False,
            ),
        )


@contextmanager
def opened(db: Workshop, spec: Spec) -> Iterator[Spending | None]:
    """The ledger of a source, attached for writing; None where there is none to keep."""
    path = ledgers.path_of(spec)
    if path is None:
        yield None
        return
    with ledgers.attached(db, path):
        yield Spending(db, spec)
