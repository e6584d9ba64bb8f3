"""Homogeneity: a bucket whose listed values are all, or nearly all, the same tells the value of everyone in it.

Machanavajjhala et al. 2006 (l-diversity). Looked for bucket by bucket and in integers; a bound f' < 1 rules it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.attacks.finding import Finding
from privsql.attacks.suite import Adversary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.attacks.suite import Learnt
    from privsql.mechanisms.bucketize.scene import Buckets

NAME = "homogeneity"
KNOWS = "the person's quasi-identifiers; looks for buckets in which one value stands alone or dominates"


def attack(scene: Buckets) -> list[Finding]:
    """Share of buckets in which the posterior of a value, or of a group, exceeds its bound; how many hold one value."""
    bid, _, count = scene.listed
    _, rank = np.unique(bid, return_inverse=True)
    listed = np.bincount(rank, count)
    most = np.zeros(len(listed), dtype=np.int64)
    np.maximum.at(most, rank, count)
    certainty = most / listed
    alone = int((most == listed).sum())
    over = len(scene.broken)
    return [
        Finding(
            NAME,
            KNOWS,
            promised=True,
            attacked=len(listed),
            unit="buckets",
            mean=float(certainty.mean()),
            highest=float(certainty.max()),
            above=over / len(listed),
            baseline=scene.baseline,
            notes=tuple(_notes(scene, alone)),
        )
    ]


def _notes(scene: Buckets, alone: int) -> Iterator[str]:
    if alone:
        yield f"{alone:,} buckets hold a single value"
    if scene.together:
        yield f"bounds on {len(scene.together):,} groups of values are counted"


def _attack(learnt: Learnt[Buckets]) -> list[Finding]:
    return attack(learnt.scene)


ADVERSARY = Adversary(NAME, KNOWS, promised=True, attack=_attack)
