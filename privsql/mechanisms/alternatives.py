"""The algorithms of a mechanism beside each other, for one specification: what each would cost, and tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Figure = float | int | None


@dataclass(frozen=True)
class Measure:
    """A figure by its ``key``, its ``title`` for a person, how it is written, and whether the ``lowest`` is best."""

    key: str
    title: str
    form: str = ".3f"
    lowest: bool = True


@dataclass(frozen=True)
class Alternative:
    """One algorithm: its figures by key, or why it refuses."""

    algorithm: str
    figures: dict[str, Figure]
    refused: str | None = None


@dataclass(frozen=True)
class Alternatives:
    """All algorithms of a mechanism, what is measured of them, and one line of advice."""

    measures: Sequence[Measure]
    rows: Sequence[Alternative]
    advice: str

    def best(self, measure: Measure) -> float | None:
        """The best figure that any algorithm has; None where they do not differ."""
        found = {figure for row in self.rows if (figure := row.figures.get(measure.key)) is not None}
        if len(found) < 2:
            return None
        return min(found) if measure.lowest else max(found)

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        rows = [{"algorithm": row.algorithm, "refused": row.refused, **row.figures} for row in self.rows]
        return {"algorithms": rows, "advice": self.advice}


def none(why: str) -> Callable[..., NoReturn]:
    """Of a mechanism whose algorithms are not to be compared: ``UsageError``, which says why."""

    def refuse(*_: object) -> NoReturn:
        raise UsageError(f"--algorithms: {why}")

    return refuse
