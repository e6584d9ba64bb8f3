"""Negative association: the release itself teaches that people with some attribute hardly ever have some value.

Counts n(v, x) are reconstructed per value v of a quasi-identifier; v and x are negatively associated if

    n(v, x) + SURE standard errors < RARE n_v f_x,

that is, with some certainty far fewer than independence would give: the statistic by which a publisher chooses fake
values that are not so excluded. The adversary strikes such values off the list of everyone with v, and shares the rest
out as before (Wang et al., section 6, after Li and Li 2008).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.attacks.association import RARE, SURE
from privsql.attacks.finding import Finding
from privsql.attacks.suite import Adversary

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from privsql.attacks.association import Column
    from privsql.attacks.block import Block, Floats
    from privsql.attacks.scene import Scene

NAME = "negative association"
KNOWS = "the person's quasi-identifiers; learns from the release which values such people hardly ever have"


def excluded(one: Column, shares: Floats) -> NDArray[np.bool_]:
    """Which values a column's levels exclude (V, m)."""
    return np.asarray(one.counts + SURE * one.errors < RARE * one.totals[:, None] * shares)


def attack(scene: Scene, columns: list[Column]) -> list[Finding]:
    """Posteriors once the excluded values are struck off; a record with no value left keeps all."""
    rules = [excluded(one, scene.shares) for one in columns]
    tally = scene.tally()
    for block in scene.blocks():
        tally.add(block, _struck(block, columns, rules))
    pairs = sum(int(rule.sum()) for rule in rules)
    notes = (f"{pairs:,} pairs of an attribute and a value exclude each other",)
    return [Finding(NAME, KNOWS, promised=False, baseline=scene.baseline, notes=notes, **tally.figures())]


def _struck(block: Block, columns: list[Column], rules: list[NDArray[np.bool_]]) -> Floats:
    out = np.zeros(block.shape, dtype=bool)
    for one, rule in zip(columns, rules, strict=True):
        if rule.any():
            out |= rule[one.level[block.rows][:, :, None], block.codes[:, None, :]]
    left = np.where(out & ~out.all(axis=2, keepdims=True), 0.0, block.prior)
    return np.asarray(left / left.sum(axis=2, keepdims=True))


ADVERSARY: Adversary[Scene] = Adversary(
    NAME, KNOWS, promised=False, attack=lambda learnt: attack(learnt.scene, learnt.columns)
)
