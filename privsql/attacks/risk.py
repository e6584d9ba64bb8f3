"""A quick estimate of the learning attack for the publisher, with what would lower it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privsql.attacks import learning
from privsql.attacks.association import learned
from privsql.attacks.scene import Given
from privsql.attacks.suite import SCENES
from privsql.noise import seed_key

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.model.manifest import Manifest

SAMPLE = 50_000  # records that are attacked at most
MANY = 500  # sensitive values beyond which learning from a release is no quick thing
WARN = 0.05  # share of records, believed beyond twice their bound, from which on the publisher is warned

ADVICE = {
    "bucketize": (
        "larger buckets (a lower threshold, or a larger min_bucket_size): more values for everyone to hide among",
        "fake values (fake_values, with a constant threshold): a belief must be shared with values that are not there",
        "coarser quasi-identifiers (age in bands, regions for places), or fewer: less to learn from",
    ),
    "randomize": (
        "a lower rho2: less of every value is kept",
        "algorithm = 'up': sub-tables with few values leave few to choose among",
        "coarser quasi-identifiers (age in bands, regions for places), or fewer: less to learn from",
    ),
}


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


def quick_learning_risk(db: Relations, manifest: Manifest, database: str | None, sample: int = SAMPLE) -> Risk | None:
    """Estimate the deFinetti attack on a release whose tables are in ``database`` (None: the current one).

    One round of ``privsql.attacks.learning`` on about ``sample`` records: for buckets, those in the first ones of each
    size, whose numbers are drawn; for perturbed records, every k-th. What is learnt from fewer
    records is learnt less well, so the whole release shows a little more. None for mechanisms that this adversary does
    not apply to, and where there are more than ``MANY`` sensitive values.
    """
    kind = manifest.mechanism
    if kind not in SCENES:
        return None
    given = Given(db, manifest, seed_key(1).stream("risk"), database, sample=sample)
    scene = SCENES[kind](given)
    if len(scene.channel.records) > MANY:
        scene.close()
        return None
    tally = scene.tally()
    columns = learned(scene, errors=False)
    learning.believed(scene, columns, learning.TYPICAL, tally)
    scene.close()
    found = tally.figures()
    return Risk(found["above"], found["twice"], found["mean"], found["attacked"], ADVICE[kind])
