"""Identifiers: a quasi-identifier that is (nearly) unique names every record; one that determines the sensitive value
publishes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.attacks.finding import Finding
from privsql.attacks.suite import Adversary

if TYPE_CHECKING:
    from privsql.attacks.association import Column
    from privsql.attacks.block import Floats, Ints
    from privsql.attacks.scene import Scene

UNIQUE = 0.95  # share of records with a value of their own from which on a column names records
FEWEST = 20  # records, below which everything is nearly unique
DETERMINED = 0.9  # share of records whose value a column gives away

NAMES = "identifiers left in"
NAMES_KNOWS = "a list of people with the column; looks for columns in which nearly everyone has a value of their own"
GIVES = "columns that give the value away"
GIVES_KNOWS = "one quasi-identifier of the person; learns from the release which value goes with it"


def naming(scene: Scene) -> list[Finding]:
    """Columns that are unique, or nearly so. No row ids leave: that is promised of every release."""
    own = {f.name: _unique(level) for f, level in zip(scene.roles.quasi_identifiers, scene.levels, strict=True)}
    enough = len(scene.keys) >= FEWEST
    notes = tuple(
        f"{name}: {share:.1%} of the records have a value of their own"
        for name, share in own.items()
        if enough and share >= UNIQUE
    )
    return [
        Finding(
            NAMES,
            NAMES_KNOWS,
            promised=True,
            attacked=len(own),
            unit="columns",
            highest=max(own.values(), default=0.0),
            leaks=bool(notes),
            notes=notes,
        )
    ]


def _unique(level: Ints) -> float:
    """Share of the records whose value no other has."""
    return float((np.bincount(level) == 1).sum() / max(1, len(level)))


def giving(scene: Scene, columns: list[Column]) -> list[Finding]:
    """For every column, the share of records whose value is guessed right by the commonest value among its peers.

    From the release, by the reconstructed counts; with the source, by the true ones. Columns that name records are left
    to ``naming``: with a value of one's own, everything is determined.
    """
    rows = [
        (f.name, one)
        for f, one in zip(scene.roles.quasi_identifiers, columns, strict=True)
        if _unique(one.level) < UNIQUE
    ]
    guessed = {name: float(one.counts.max(axis=1).sum() / one.counts.sum()) for name, one in rows}
    true = {name: _true(scene, one.level) for name, one in rows} if scene.truth else guessed
    notes = tuple(
        f"{name} determines the sensitive value for {share:.1%} of the records"
        for name, share in true.items()
        if share >= DETERMINED
    )
    best = max(guessed.values(), default=0.0)
    right = max(true.values(), default=0.0) if scene.truth else None
    return [
        Finding(
            GIVES,
            GIVES_KNOWS,
            promised=False,
            attacked=len(rows),
            unit="columns",
            mean=best,
            highest=best,
            baseline=scene.baseline,
            right=right,
            leaks=bool(notes),
            notes=notes,
        )
    ]


def _true(scene: Scene, level: Ints) -> float:
    """Share of the source's records that have the commonest value of their level."""
    truth = scene.truth
    if truth is None:
        raise ValueError("the source is needed")
    _, first = np.unique(truth.keys, return_index=True)
    keys, codes = np.divmod(truth.cells, truth.values)
    of_key = np.zeros(int(truth.keys.max()) + 1, dtype=np.int64)
    of_key[truth.keys[first]] = level[first]
    counts: Floats = np.bincount(of_key[keys] * truth.values + codes, truth.records).astype(np.float64)
    padded = np.resize(
        np.append(counts, np.zeros(-len(counts) % truth.values)), (-(-len(counts) // truth.values), truth.values)
    )
    return float(padded.max(axis=1).sum() / max(1.0, counts.sum()))


ADVERSARY: Adversary[Scene] = Adversary(NAMES, NAMES_KNOWS, promised=True, attack=lambda learnt: naming(learnt.scene))
GIVING: Adversary[Scene] = Adversary(
    GIVES, GIVES_KNOWS, promised=False, attack=lambda learnt: giving(learnt.scene, learnt.columns)
)
