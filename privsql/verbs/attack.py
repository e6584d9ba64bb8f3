"""``attack``: what each adversary could learn from a release, measured."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privsql import noise
from privsql.attacks import intersection, suite
from privsql.attacks.finding import Finding
from privsql.attacks.scene import Given
from privsql.engine.duck import scratch
from privsql.errors import GuaranteeError
from privsql.releases.contents import contents
from privsql.releases.opened import opened
from privsql.verbs.room import beside
from privsql.verbs.verify import verify

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from privsql.engine.progress import Options
    from privsql.model.manifest import Manifest
    from privsql.source.spec import Spec

DIFFERENCES = "difference of releases"
DIFFERENCES_KNOW = "another release of the same people; subtracts and intersects groups whose members it can match"


@dataclass(frozen=True)
class Attacked:
    """The findings of all adversaries; ``source``: whether beliefs were compared with the truth."""

    findings: list[Finding]
    source: bool
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether every adversary that the mechanism promises to resist is resisted."""
        return not any(one.exceeded for one in self.findings)

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        rows = [one.as_json() for one in self.findings]
        return {"ok": self.ok, "source": self.source, "adversaries": rows, "seconds": round(self.seconds, 3)}


def attack(
    path: Path,
    spec: Spec | None = None,
    *,
    against: Sequence[Path] = (),
    seed: int = 1,
    options: Options | None = None,
) -> Attacked:
    """Attack a release with every adversary of ``privsql.attacks.suite``; ``against``: other releases of the people.

    With the specification of its source, what is believed is compared with what is true. ``seed``: which records a
    corrupting adversary knows. Raises ``GuaranteeError`` if the file does not hold what a release holds.
    """
    clock, drawn = time.monotonic(), noise.seed_key(seed).stream("attack")
    with opened(path) as (db, manifest, _):
        held = contents(db, manifest, None)[0]
        if not held.ok:
            raise GuaranteeError(f"{path}: {held.offending[0]}; verify it")
        findings = suite.run(Given(db, manifest, drawn)) if spec is None else []
    if spec is not None:
        with beside(path, spec, manifest, options) as (room, _):
            findings = suite.run(Given(room, manifest, drawn, "release", source=True))
    for other in against:
        findings += _together(path, other)
    return Attacked(findings, spec is not None, time.monotonic() - clock)


def _together(path: Path, other: Path) -> list[Finding]:
    """What two releases tell: by intersection, and where groups are to withstand it by difference as well."""
    manifests = []
    for one in (path, other):
        with opened(one) as (db, manifest, _):
            held = contents(db, manifest, None)[0]
            if not held.ok:
                raise GuaranteeError(f"{one}: {held.offending[0]}; verify it")
            manifests.append(manifest)
    with scratch() as db:
        for one, name in ((path, "r0"), (other, "r1")):
            db.load(one, name) if one.is_dir() else db.attach(one, name, read_only=True)
        found = intersection.attack(db, (manifests[0], manifests[1]), ("r0", "r1"))
    if all(manifest.mechanism == "permute" for manifest in manifests):
        found.append(_differences(path, other, manifests[0]))
    return found


def _differences(path: Path, other: Path, manifest: Manifest) -> Finding:
    """Differences and intersections of groups (Definition 5), as ``verify --against`` finds them."""
    checks = [check for check in verify(path, against=[other]).checks if other.name in check.name]
    failed = [check for check in checks if not check.ok]
    return Finding(
        DIFFERENCES,
        DIFFERENCES_KNOW,
        promised=manifest.algorithm == "nested",
        attacked=len(checks),
        unit="ways to combine",
        leaks=bool(failed),
        notes=tuple(f"{check.name}: {check.violations}" for check in failed),
    )
