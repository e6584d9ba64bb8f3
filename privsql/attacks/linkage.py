"""Linkage: who knows a person's quasi-identifiers finds the record, and reads off what is published of its value.

This is the adversary that both mechanisms promise to resist. Bucketization: Pr(x | g) = count(g, x)/|g| (with sigma
fakes, over |g| + sigma listed values), at most f'_x. Randomization: for a record published with y = x,
gamma f/(gamma f + 1 - f), at most rho2 for a protected x whose frequency in the sub-table is at most rho1_j.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from privsql.attacks.finding import Finding
from privsql.mechanisms.bucketize.scene import Buckets
from privsql.mechanisms.randomize.scene import Perturbed

if TYPE_CHECKING:
    from privsql.attacks.scene import Scene

NAME = "linkage"
KNOWS = "the person's quasi-identifiers, that the person is in the table, and how the release was made"


def attack(scene: Scene) -> list[Finding]:
    """The promised posterior of every record. Whether a bound is exceeded is decided in exact numbers."""
    tally = scene.tally()
    for block in scene.blocks():
        tally.add(block, np.broadcast_to(block.prior, block.shape))
    figures = tally.figures() | {"above": _exact(scene)}
    return [Finding(NAME, KNOWS, promised=True, baseline=scene.baseline, **figures)]


def _exact(scene: Scene) -> float:
    """Share of the records for which a value's posterior exceeds its bound."""
    if isinstance(scene, Buckets):
        over = np.array(sorted({int(row[0]) for row in scene.over}), dtype=np.int64)
        return float(np.isin(scene.parts, over).mean())
    if isinstance(scene, Perturbed):
        return float(np.isin(scene.parts, _excessive(scene)).mean())
    raise TypeError(type(scene).__name__)


def _excessive(scene: Perturbed) -> list[int]:
    """Sub-tables whose stated parameters allow a posterior above rho2."""
    rho2 = Fraction(scene.given.manifest.parameters["rho2"])
    found = []
    for row in scene.all("privsql_subtables").to_pylist():
        rho1 = Fraction(int(row["rho1_numerator"]), int(row["rho1_denominator"]))
        gamma = Fraction(int(row["gamma_numerator"]), int(row["gamma_denominator"]))
        if gamma * rho1 > rho2 * (gamma * rho1 + 1 - rho1):
            found.append(int(row["sub_table"]))
    return found
