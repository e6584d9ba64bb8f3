"""Linkage: who knows a person's quasi-identifiers finds the record, and reads off what is published of its value.

This is the adversary that both mechanisms promise to resist. Bucketization: Pr(x | g) = count(g, x)/|g| (with sigma
fakes, over |g| + sigma listed values), at most f'_x. Randomization: for a record published with y = x,
gamma f/(gamma f + 1 - f), at most rho2 for a protected x whose frequency in the sub-table is at most rho1_j.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.attacks.finding import Finding
from privsql.attacks.suite import Adversary

if TYPE_CHECKING:
    from privsql.attacks.scene import Scene

NAME = "linkage"
KNOWS = "the person's quasi-identifiers, that the person is in the table, and how the release was made"


def attack(scene: Scene) -> list[Finding]:
    """The promised posterior of every record. Whether a bound is exceeded is decided in exact numbers."""
    tally = scene.tally()
    for block in scene.blocks():
        tally.add(block, np.broadcast_to(block.prior, block.shape))
    figures = tally.figures() | {"above": scene.excess()}
    return [Finding(NAME, KNOWS, promised=True, baseline=scene.baseline, **figures)]


ADVERSARY: Adversary[Scene] = Adversary(NAME, KNOWS, promised=True, attack=lambda learnt: attack(learnt.scene))
