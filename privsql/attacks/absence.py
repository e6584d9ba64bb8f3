"""Absence: whoever knows everybody's quasi-identifiers sees who is missing from a release.

If everybody's quasi-identifiers are known and n of N people are published, the mean over all people of the belief in a
value x is f_x, its frequency among all N, whatever the publisher does. So what is taken from the belief about those who
are there is added to the belief about those who are missing: leaving records out because of their sensitive value tells
that value. No bound on those who are there mends it; it is outside every promise, and a publisher has to state that
absence is not observable.
"""

from __future__ import annotations

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


def missing(manifest: Manifest) -> dict[str, int]:
    """Records that are missing because of their sensitive value, by the reason."""
    left_out = int(manifest.facts.get("left_out", 0))
    empty = (manifest.suppressed or 0) - left_out
    nulls = [field.name for field in manifest.sensitive if manifest.nulls.get(field.name) == "suppress"]
    found = {"their value has no room": left_out}
    if nulls:
        found[f"{' or '.join(nulls)} is NULL"] = empty
    return {why: records for why, records in found.items() if records > 0}


def told(manifest: Manifest) -> list[str]:
    """What to say of those who are missing, a sentence for each reason."""
    return [
        f"{records:,} records are missing because {why}: who sees that they are missing learns it; nothing is promised "
        "of them"
        for why, records in missing(manifest).items()
    ]


def attack(view: ReleaseView, belief: float | None) -> list[Finding]:
    """A finding for each reason; ``belief`` in the value of those whose value has no room, where that is known."""
    return [
        Finding(
            NAME,
            KNOWS,
            promised=False,
            attacked=records,
            mean=1.0 if why.endswith("is NULL") else belief,
            highest=1.0 if why.endswith("is NULL") else belief,
            leaks=True,
            notes=(f"missing because {why}",),
        )
        for why, records in missing(view.manifest).items()
    ]


def adversary(belief: Callable[[Learnt[Needed]], float | None]) -> Adversary[Needed]:
    """The adversary of a mechanism; ``belief`` in the value of those whose value has no room."""
    return Adversary(NAME, KNOWS, promised=False, attack=lambda learnt: attack(learnt.view, belief(learnt)))
