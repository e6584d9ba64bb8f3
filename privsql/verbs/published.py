"""What ``publish`` and ``plan`` give back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from privsql import markup
from privsql.errors import UsageError
from privsql.mechanisms.registry import of

if TYPE_CHECKING:
    from pathlib import Path

    from privsql.model.checks import Result
    from privsql.source.spec import Spec


@dataclass(frozen=True, repr=False)
class Published:
    """A release that was written, or (``release`` None) that could be; ``ledger``: what the publisher's ledger says.

    ``spec``: the whole specification, with its table where that lies in Python: what ``verify``, ``evaluate`` and
    ``attack`` take as ``source``. Where a path of a release is wanted, this may stand for it. ``search_seconds``: of a
    processor that a plan's search took, where the mechanism says so.
    """

    release: Path | None
    facts: dict[str, Any]
    ledger: dict[str, Any] = field(default_factory=dict)
    checks: list[Result] = field(default_factory=list)
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
    spec: Spec | None = field(default=None, repr=False)
    search_seconds: float | None = None

    def __fspath__(self) -> str:
        """The path of the release; ``UsageError`` for a plan."""
        if self.release is None:
            raise UsageError("this is a plan; publish it first")
        return str(self.release)

    @property
    def lines(self) -> list[tuple[str, object]]:
        """What a person is told of it: names, and what they stand for."""
        facts = self.facts
        rows: list[tuple[str, object]] = [("mechanism", f"{facts['mechanism']}, {facts['algorithm']}")]
        if facts["published"] is not None:
            rows.append(("records", f"{facts['published']:,} published, {facts['suppressed']:,} suppressed"))
        rows += [*of(facts["mechanism"]).figures(facts), *self._kept()]
        if self.checks:
            rows.append(("checks", f"{len(self.checks)} passed"))
        return [*rows, ("time", f"{self.seconds:.2f} s")]

    def _kept(self) -> list[tuple[str, object]]:
        """What the publisher's ledger says of a release, or of one that there could be."""
        told = self.ledger
        rows: list[tuple[str, object]] = []
        if "spent" in told:
            here = " with this one" if self.release is not None else ""
            rows.append(("budget", f"epsilon {told['spent']} spent{here}, {capped(told['cap'])}"))
        if told.get("off"):
            rows.append(("ledger", "none is kept, and the release says so"))
        if "release" in told:
            replaced = f"; release {told['withdrawn']}, which it replaces, is withdrawn" if "withdrawn" in told else ""
            rows.append(("ledger", f"release {told['release']}{replaced}"))
        return rows

    def __repr__(self) -> str:
        told = f"release={str(self.release)!r}" if self.release is not None else "a plan"
        return f"<Published {told}: {self.facts['mechanism']}, {self.facts['algorithm']}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        title = "Plan: nothing is written" if self.release is None else f"Release {self.release}"
        warned = [markup.line(f"warning: {one}") for one in self.warnings]
        return markup.page(title, markup.pairs(self.lines), *warned)

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        shown = {"release": str(self.release) if self.release else None, **self.facts}
        return {
            **shown,
            "ledger": self.ledger,
            "checks": [check.as_json() for check in self.checks],
            "seconds": round(self.seconds, 3),
            **({} if self.search_seconds is None else {"search_seconds": self.search_seconds}),
            "warnings": self.warnings,
        }


def capped(cap: str | None) -> str:
    """The most that may be spent, in words."""
    return "no cap is set" if cap is None else f"of at most {cap}"
