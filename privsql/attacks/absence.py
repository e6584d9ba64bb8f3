"""Absence: whoever knows everybody's quasi-identifiers sees who is missing from a release.

If everybody's quasi-identifiers are known and n of N people are published, the mean over all people of the belief in a
value x is f_x, its frequency among all N, whatever the publisher does. So what is taken from the belief about those who
are there is added to the belief about those who are missing: leaving records out because of their sensitive value tells
that value. No bound on those who are there mends it; it is outside every promise, and a publisher has to state that
absence is not observable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from privsql.attacks.finding import Finding
from privsql.attacks.suite import Adversary

if TYPE_CHECKING:
    from collections.abc import Callable

    from privsql.attacks.scene import ReleaseView
    from privsql.attacks.suite import Learnt, Needed
    from privsql.model.manifest import Manifest

NAME = "absence"
KNOWS = "everybody's quasi-identifiers, and so who is missing from the release"


@dataclass(frozen=True)
class Missing:
    """Records that are not in a release because of their sensitive value: how many, why, and what that tells."""

    records: int
    why: str
    tells: str
    certain: bool = False


def missing(manifest: Manifest) -> list[Missing]:
    """Who is missing from a release, by reason."""
    waiting = int(manifest.facts.get("held_back", 0))
    left_out = int(manifest.facts.get("left_out", 0)) - waiting
    nulls = [field.name for field in manifest.sensitive if manifest.nulls.get(field.name) == "suppress"]
    empty = (manifest.suppressed or 0) - left_out - waiting if nulls else 0
    name = " or ".join(nulls)
    found = (
        Missing(left_out, "their value is too frequent", "who sees that they are missing learns it"),
        Missing(empty, f"{name} is NULL", "who sees that they are missing learns that", certain=True),
        Missing(waiting, "their group as a whole waits", "who sees that learns that its values are few or near"),
    )
    return [one for one in found if one.records > 0]


def told(manifest: Manifest) -> list[str]:
    """What to say of those who are missing, a sentence for each reason."""
    return [
        f"{one.records:,} records are missing because {one.why}: {one.tells}; nothing is promised of them"
        for one in missing(manifest)
    ]


def attack(view: ReleaseView, belief: float | None) -> list[Finding]:
    """A finding for each reason; ``belief`` in the value of those whose value is too frequent, where that is known."""
    found = []
    for one in missing(view.manifest):
        sure = 1.0 if one.certain else belief
        notes = (f"missing because {one.why}: {one.tells}",)
        found.append(
            Finding(NAME, KNOWS, promised=False, attacked=one.records, mean=sure, highest=sure, leaks=True, notes=notes)
        )
    return found


def adversary(belief: Callable[[Learnt[Needed]], float | None]) -> Adversary[Needed]:
    """The adversary of a mechanism; ``belief`` in the value of those whose value is too frequent."""
    return Adversary(NAME, KNOWS, promised=False, attack=lambda learnt: attack(learnt.view, belief(learnt)))
