"""How much one question may take: time of the engine's, and rows of its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine.sqlfiles import fill, table
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from threading import Event

    from privsql.answers.evaluation import Asking
    from privsql.answers.question import Group


@dataclass(frozen=True)
class Limits:
    """``seconds`` that the engine may take for a question, and ``rows`` that its groups could give.

    Where a row has several aggregate functions each counts as a row: it is a question of its own.
    ``stop`` ends a question at once: nobody waits for it any more.
    """

    seconds: float
    rows: int
    stop: Event | None = None

    def refuse(self, asking: Asking) -> None:
        """``UsageError`` for a question whose groups could give more rows, before any of them is estimated."""
        found = sum(_groups(asking, chosen) for chosen in asking.statement.sets)
        figures = max(1, len(asking.statement.asked))
        if found * figures > self.rows:
            each = f" of {figures} figures" if figures > 1 else ""
            raise UsageError(
                f"the answer could have {found:,} rows{each}, more than {self.rows:,}; group by fewer columns, or by "
                "ranges"
            )


def _groups(asking: Asking, chosen: Sequence[int]) -> int:
    """A number that is not exceeded by that of the groups: those of the records, times the sensitive values."""
    groups = asking.statement.scope.by(chosen).groups
    found = _different(asking, [one for one in groups if one.side == "qi"])
    for one in groups:
        if one.side == "sa":
            found *= _different(asking, [one])
    return found


def _different(asking: Asking, groups: Sequence[Group]) -> int:
    """How many groups some expressions of one side make."""
    if not groups:
        return 1
    of_records = groups[0].side == "qi"
    place = table(asking.answers.records if of_records else asking.answers.values)
    records = asking.statement.scope.question().records(place) if of_records else place
    keys: list[exp.Expr] = [exp.paren(one.own.copy()) for one in groups]
    return int(asking.db.rows(fill("query/groups", {"records": records, "keys": keys}))[0][0])
