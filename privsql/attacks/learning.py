"""Learning from the release alone: the deFinetti attack (Kifer 2009; Cormode 2011 for the naive Bayes form).

The adversary reconstructs how every quasi-identifier goes with the sensitive values (``privsql.attacks.association``),
multiplies the columns as if they were independent given the value (naive Bayes), and weighs what each bucket or
perturbed value allows for a record by that. In a bucket every listed value belongs to one record only. ``iterated``
repeats this with the beliefs so gained in place of the reconstruction, until they no longer move: the attack as it was
first described. It can be the weaker one, because what naive Bayes gets wrong feeds back.

What is measured without the source are beliefs, and a naive Bayes adversary is too sure of itself where columns say the
same thing twice. With the source, ``right`` says how often its best guess is true and ``true_above`` for how many
records it holds the true value for more certain than was promised.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from privsql.attacks.association import Column, likelihood, ratios
from privsql.attacks.finding import Finding

if TYPE_CHECKING:
    from privsql.attacks.block import Block, Floats
    from privsql.attacks.scene import Scene
    from privsql.attacks.tally import Tally

NAME = "learning (deFinetti)"
ITERATED = "learning, iterated"
KNOWS = "everybody's quasi-identifiers; learns from the release alone which kind of people have which value"
ITERATED_KNOWS = "the same; lets what it believes of single people correct what it learnt, again and again"
ROUNDS = 8
STILL = 0.01  # share of the learnt counts that move in a round below which beliefs stand still


def attack(scene: Scene, columns: list[Column]) -> list[Finding]:
    """Posterior of every record under the reconstructed associations."""
    tally = scene.tally()
    believed(scene, columns, tally)
    return [Finding(NAME, KNOWS, promised=False, baseline=scene.baseline, **tally.figures())]


def iterated(scene: Scene, columns: list[Column]) -> list[Finding]:
    """Posterior of every record at the fixed point, or after ``ROUNDS``."""
    rounds, moved = 0, 1.0
    while rounds < ROUNDS and moved >= STILL:
        updated = believed(scene, columns)
        moved, columns, rounds = _moved(columns, updated), updated, rounds + 1
    tally = scene.tally()
    believed(scene, columns, tally)
    still = f", {moved:.1%} of the counts still moving" if moved >= STILL else ""
    notes = (f"{rounds} rounds{still}",)
    return [Finding(ITERATED, ITERATED_KNOWS, promised=False, baseline=scene.baseline, notes=notes, **tally.figures())]


def believed(scene: Scene, columns: list[Column], tally: Tally | None = None) -> list[Column]:
    """One round: the posteriors under ``columns``, counted into ``tally``, and the counts that they add up to."""
    logs = ratios(columns, scene.shares)
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
