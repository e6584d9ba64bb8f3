"""A quick estimate of the learning attack for the publisher, with what would lower it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privsql.attacks import learning
from privsql.attacks.association import learned

if TYPE_CHECKING:
    from collections.abc import Callable

    from privsql.attacks.scene import ReleaseView, Scene

SAMPLE = 50_000  # records that are attacked at most
MANY = 500  # sensitive values beyond which learning from a release is no quick thing
WARN = 0.05  # share of records, believed beyond twice their bound, from which on the publisher is warned


@dataclass(frozen=True)
class Risk:
    """``above``, ``twice``: shares of records for which learning from the release alone leads to a belief above the
    bound, and above twice the bound; ``mean``: mean belief in the best guess; ``attacked``: records it was tried on.
    """

    above: float
    twice: float
    mean: float
    attacked: int
    advice: tuple[str, ...] = ()

    def exceeds(self, share: float = WARN) -> bool:
        """Whether to warn. Any learning exceeds a bound that buckets use up, so what counts is twice the bound."""
        return self.twice > share

    def warning(self) -> str:
        """What to tell the publisher, in one line."""
        figures = f"{self.twice:.0%} of the records beyond twice their bound ({self.above:.0%} beyond it)"
        return (
            f"who learns from the release how quasi-identifiers and sensitive values go together gets {figures}; "
            f"that is outside the promise. It is lowered by {'; or '.join(self.advice)}"
        )

    def as_facts(self) -> dict[str, Any]:
        """For a manifest: shares of four digits."""
        return {"above": round(self.above, 4), "twice": round(self.twice, 4), "attacked": self.attacked}


def quick_learning_risk(
    view: ReleaseView, set_up: Callable[[ReleaseView], Scene] | None, advice: tuple[str, ...]
) -> Risk | None:
    """Estimate the deFinetti attack on a release.

    One round of ``attacks.learning`` on the view's sample: for buckets, those in the first ones of each size where
    their numbers are drawn, else in every k-th one; for perturbed records, every k-th. What is learnt from fewer
    records is learnt less well, so the whole release shows a little more. None where there is no scene
    to learn from, and where there are more than ``MANY`` sensitive values.
    """
    if set_up is None:
        return None
    scene = set_up(view)
    if len(scene.channel.records) > MANY:
        scene.close()
        return None
    tally = scene.tally()
    columns = learned(scene, errors=False)
    learning.believed(scene, columns, learning.TYPICAL, tally)
    scene.close()
    found = tally.figures()
    return Risk(found["above"], found["twice"], found["mean"], found["attacked"], advice)
