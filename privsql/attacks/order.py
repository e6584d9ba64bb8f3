"""Row order: whether the order of published rows, or the numbers of buckets, tell what they should not.

Tables are published in canonical order, which follows from their contents alone. Rows that lie otherwise were put there
by something else, such as the order of the source. Bucket numbers within a size are exchangeable in layouts that draw
them; a quasi-identifier that runs with them betrays the order in which records were taken.

With the source, the i-th row of a bucket is paired with its i-th listed value, which is right no more often than any
other pairing if the order tells nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from privsql.attacks.finding import Finding
from privsql.attacks.suite import Adversary
from privsql.engine.sqlfiles import fill
from privsql.model.checks import in_order

if TYPE_CHECKING:
    from sqlglot import exp

    from privsql.attacks.block import Ints
    from privsql.attacks.scene import Scene

NAME = "row order"
KNOWS = "how the rows lie in the published tables, and how buckets are numbered"
SIGNIFICANCE = 1e-6  # false alarms per clean release, over all columns together


def attack(scene: Scene) -> list[Finding]:
    """Rows out of canonical order, and columns that run with the bucket numbers."""
    out = {name: _count(scene, in_order(rows, order, strict=False)) for name, (rows, order) in scene.ordered().items()}
    notes = [f"{number:,} rows of {name} lie out of canonical order" for name, number in out.items() if number]
    notes += _running(scene)
    leaks, stored = bool(notes), len(scene.keys)
    return [Finding(NAME, KNOWS, promised=True, attacked=stored, leaks=leaks, notes=tuple(notes), **_paired(scene))]


def _count(scene: Scene, offending: exp.Query) -> int:
    return int(scene.db.rows(fill("core/size", {"table": offending.subquery("offending")}))[0][0])


def _running(scene: Scene) -> list[str]:
    """Quasi-identifiers that run with the numbers of the buckets, by a permutation test.

    T_g is the sum of the column's ranks in bucket g. Over random numbers of the b buckets of a size,
    Var[sum_g g T_g] = sum_g (g - mean)^2 sum_g (T_g - mean)^2/(b - 1); the sizes' sums add up to one normal deviate.
    """
    found = []
    for level, field in zip(scene.levels, scene.roles.quasi_identifiers, strict=True):
        deviate = _deviate(scene, level)
        if scipy.special.erfc(abs(deviate) / np.sqrt(2)) < SIGNIFICANCE / len(scene.levels):
            found.append(f"{field.name} runs with the bucket numbers ({abs(deviate):.0f} standard errors)")
    return found


def _deviate(scene: Scene, level: Ints) -> float:
    total = variance = 0.0
    for rows in scene.numbered:
        sums, number = level[rows].sum(axis=1).astype(np.float64), np.arange(len(rows), dtype=np.float64)
        sums, number = sums - sums.mean(), number - number.mean()
        total += float(number @ sums)
        variance += float((number**2).sum() * (sums**2).sum()) / max(1, len(rows) - 1)
    return total / np.sqrt(variance) if variance > 0 else 0.0


def _paired(scene: Scene) -> dict[str, Any]:
    """How often the i-th row's value is the i-th listed one, with the source; and how often that is by chance."""
    truth = scene.truth
    if truth is None or not scene.paired:
        return {}
    right = chance = matched = 0.0
    for block in scene.blocks():
        true = truth.of(block)
        right += float((np.einsum("bii->bi", true) * block.times).sum())
        chance += float((true.sum(axis=2) * block.times.mean(axis=1)[:, None]).sum() / block.shape[2])
        matched += float(true.sum())
    return {"right": right / max(1.0, matched), "baseline": chance / max(1.0, matched)}


ADVERSARY: Adversary[Scene] = Adversary(NAME, KNOWS, promised=True, attack=lambda learnt: attack(learnt.scene))
