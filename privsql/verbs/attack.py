"""``attack``: what each adversary could learn from a release, measured."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privsql import markup, noise, plot
from privsql.attacks.scene import ReleaseView
from privsql.attacks.suite import Several
from privsql.calls import as_path, as_paths, whole
from privsql.engine.progress import running
from privsql.errors import UsageError
from privsql.mechanisms.registry import of
from privsql.releases.opened import explained, opened, together
from privsql.source.given import beside as sourced
from privsql.verbs.room import beside, same_persons

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Unpack

    from privsql.attacks.finding import Finding
    from privsql.calls import PathLike
    from privsql.engine.progress import Running
    from privsql.source.given import Given


@dataclass(frozen=True)
class Attacked:
    """The findings of all adversaries; ``source``: whether beliefs were compared with the truth."""

    findings: list[Finding]
    source: bool
    seconds: float

    @property
    def measured(self) -> list[Finding]:
        """The findings of those who had something to attack."""
        return [one for one in self.findings if one.applies and one.attacked]

    @property
    def promised(self) -> list[Finding]:
        """The findings of those whom the mechanism promises to resist."""
        return [one for one in self.findings if one.promised]

    @property
    def ok(self) -> bool:
        """Whether something was measured, and no promise is broken."""
        return bool(self.measured) and not any(one.exceeded for one in self.findings)

    @property
    def verdict(self) -> str:
        """The outcome in words. That every promise holds is only said where every promise was measured."""
        if not self.measured:
            return "NOTHING WAS MEASURED: no adversary of this mechanism had anything to attack"
        broken = [one for one in self.promised if one.exceeded]
        measured = [one for one in self.promised if one in self.measured]
        counts = f"{len(self.promised)} promised, {len(measured)} measured, {len(measured) - len(broken)} kept"
        if broken:
            return f"A PROMISE IS BROKEN ({counts})"
        if len(measured) < len(self.promised) or not measured:
            return f"no promise is broken, but not every one was measured ({counts})"
        return f"every promise holds ({counts})"

    @property
    def exit_code(self) -> int:
        """0; 1 for a broken promise; 3 where nothing was measured."""
        return 0 if self.ok else 1 if self.measured else 3

    def plot(self) -> Any:
        """A picture, of altair: certainty of every adversary's best guess, and by known records."""
        return plot.shown(plot.attacks, self)

    def _repr_html_(self) -> str:
        """What a notebook shows: one row per adversary."""
        head = ("adversary", "what it knows", "attacked", "mean", "highest", "above bound", "right", "promise")
        rows = (
            (
                one.adversary,
                one.knows,
                f"{one.attacked:,} {one.unit}" if one.applies else None,
                *map(_percent, (one.mean, one.highest, one.above, one.right)),
                one.kept,
            )
            for one in self.findings
        )
        return markup.page(self.verdict, markup.table(head, rows, len(self.findings)))

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        rows = [one.as_json() for one in self.findings]
        head = {"ok": self.ok, "source": self.source, "measured": len(self.measured), "verdict": self.verdict}
        return {**head, "adversaries": rows, "seconds": round(self.seconds, 3)}


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.1%}"


def attack(
    release: PathLike,
    source: Given | None = None,
    *,
    against: Sequence[PathLike] | PathLike = (),
    seed: int = 1,
    within: str | None = None,
    key_file: PathLike | None = None,
    **how: Unpack[Running],
) -> Attacked:
    """Attack a release with every adversary that its mechanism names; ``against``: other releases of the people.

    With its source (as of ``verify``), what is believed is compared with what is true. ``seed``: which records a
    corrupting adversary knows; ``within``: how near a guess of a number or date has to come; ``key_file``: as of
    ``verify``. Raises
    ``GuaranteeError`` if the file does not hold what a release holds.
    """
    path, others = as_path(release, "release"), as_paths(against, "against")
    clock, drawn = time.monotonic(), noise.seed_key(whole(seed, "seed", None)).stream("attack")
    own = as_path(key_file, "key_file") if key_file is not None else None
    near = str(within) if within is not None else None
    with running(how, attack) as options:
        with opened(path) as (db, manifest), explained(path):
            suite = of(manifest.mechanism).adversaries
            findings = suite.run(ReleaseView(db, manifest, drawn, within=near)) if source is None else []
        if source is not None:
            spec = sourced(source, manifest)
            with beside(path, spec, manifest, options, key_file=own) as (room, records), explained(path):
                same_persons(manifest, records)
                findings = suite.run(ReleaseView(room, manifest, drawn, "release", source=True, within=near))
        for other in others:
            findings += _together((path, other))
    return Attacked(findings, source is not None, time.monotonic() - clock)


def _together(paths: tuple[Path, Path]) -> list[Finding]:
    """What two releases tell, by the adversaries that combine releases of both mechanisms."""
    with together(paths) as (db, manifests), explained(*paths):
        first, second = (of(manifest.mechanism).adversaries.combining for manifest in manifests)
        combining = [adversary for adversary in first if adversary in second]
        if not combining:
            kinds = " and ".join(dict.fromkeys(manifest.mechanism for manifest in manifests))
            raise UsageError(f"--against: no adversary combines releases made by {kinds}")
        several = Several(db, manifests, ("r0", "r1"), [one.name for one in paths])
        return [found for adversary in combining for found in adversary(several)]
