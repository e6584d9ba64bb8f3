"""Learning from the release alone: the deFinetti attack (Kifer 2009; Cormode 2011 for the naive Bayes form).

The adversary reconstructs how every quasi-identifier goes with the sensitive values (``privsql.attacks.association``),
multiplies the columns as if they were independent given the value (naive Bayes), and weighs what each bucket or
perturbed value allows for a record by that. In a bucket every listed value belongs to one record only.

Columns that say the same thing twice would make it too sure of itself. It notices: its beliefs about single records,
added up, must give the counts that it reconstructed. So it takes the product to the power (0, 1] at which they come
nearest to them.

``iterated`` goes on with the beliefs so gained in place of the reconstruction, until they no longer move: the attack as
it was first described. It can be the weaker one, because what naive Bayes gets wrong feeds back.

What is measured without the source are beliefs. With the source, ``right`` says how often the best guess is true, and
``true_above`` for how many records the true value is held for more certain than was promised.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from privsql.attacks.association import Column, likelihood, ratios
from privsql.attacks.finding import Finding
from privsql.attacks.suite import Adversary

if TYPE_CHECKING:
    from privsql.attacks.block import Block, Floats
    from privsql.attacks.scene import Scene
    from privsql.attacks.tally import Tally

NAME = "learning (deFinetti)"
ITERATED = "learning, iterated"
KNOWS = "everybody's quasi-identifiers; learns from the release alone which kind of people have which value"
ITERATED_KNOWS = "the same; lets what it believes of single people correct what it learnt, again and again"
STRENGTHS = (0.55, 0.7, 0.85, 1.0)
TYPICAL = 0.7  # what fits bucketized census tables; taken where there is no time to fit
ROUNDS = 8
STILL = 0.01  # share of the learnt counts that move in a round below which beliefs stand still


def attack(scene: Scene, columns: list[Column]) -> list[Finding]:
    """Posterior of every record under the reconstructed associations."""
    tally, strength = scene.tally(), fitting(scene, columns)
    believed(scene, columns, strength, tally)
    notes = (f"the columns together to the power of {strength:g}",)
    return [Finding(NAME, KNOWS, promised=False, baseline=scene.baseline, notes=notes, **tally.figures())]


def fitting(scene: Scene, columns: list[Column]) -> float:
    """The power of ``STRENGTHS`` at which beliefs add up to the reconstructed counts most nearly."""
    return min(STRENGTHS, key=lambda strength: _moved(columns, believed(scene, columns, strength)))


def iterated(scene: Scene, columns: list[Column]) -> list[Finding]:
    """Posterior of every record at the fixed point, or after ``ROUNDS``; of the plain product, as first described."""
    rounds, moved = 0, 1.0
    while rounds < ROUNDS and moved >= STILL:
        updated = believed(scene, columns)
        moved, columns, rounds = _moved(columns, updated), updated, rounds + 1
    tally = scene.tally()
    believed(scene, columns, tally=tally)
    still = f", {moved:.1%} of the counts still moving" if moved >= STILL else ""
    notes = (f"{rounds} rounds{still}",)
    return [Finding(ITERATED, ITERATED_KNOWS, promised=False, baseline=scene.baseline, notes=notes, **tally.figures())]


def believed(scene: Scene, columns: list[Column], strength: float = 1.0, tally: Tally | None = None) -> list[Column]:
    """One round: the posteriors under ``columns``, counted into ``tally``, or else the counts that they add up to."""
    logs = [strength * ratio for ratio in ratios(columns, scene.shares)]
    counts = [np.zeros(one.counts.size) for one in columns]
    for block in scene.blocks():
        slots = block.believe(likelihood(columns, logs, block))
        if tally is not None:
            tally.add(block, slots)
        else:
            _gather(block, slots, columns, counts)
    if tally is not None:
        return columns
    shaped = (total.reshape(one.counts.shape) for one, total in zip(columns, counts, strict=True))
    return [replace(one, counts=total) for one, total in zip(columns, shaped, strict=True)]


def _gather(block: Block, slots: Floats, columns: list[Column], counts: list[Floats]) -> None:
    """Add the posteriors to the counts of (level, value) of every column."""
    m = columns[0].counts.shape[1]
    for i, one in enumerate(columns):
        cell = one.level[block.rows][:, :, None] * m + block.codes[:, None, :]
        counts[i] += np.bincount(cell.ravel(), slots.ravel(), minlength=one.counts.size)


def _moved(before: list[Column], after: list[Column]) -> float:
    """Mean over the columns of the share of records whose counts moved."""
    changes = [np.abs(a.counts - b.counts).sum() / 2 / b.counts.sum() for a, b in zip(after, before, strict=True)]
    return float(np.mean(changes))


ADVERSARY: Adversary[Scene] = Adversary(
    NAME, KNOWS, promised=False, attack=lambda learnt: attack(learnt.scene, learnt.columns)
)
AGAIN: Adversary[Scene] = Adversary(
    ITERATED, ITERATED_KNOWS, promised=False, attack=lambda learnt: iterated(learnt.scene, learnt.columns)
)
