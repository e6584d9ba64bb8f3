"""What (k,e)-anonymity promises, and how good guesses are all the same.

Every group has at least k distinct values over a range of at least e: that is looked for, group by group. It bounds
neither the belief in a single value nor that in a range of values: with c_g(x) of |g| records of a group having x, the
best exact guess is right with max_x c_g(x)/|g|, and the best guess to within a distance d with
max_y sum_{|x - y| <= d} c_g(x)/|g|.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.attacks import absence, identifiers, learning, order
from privsql.attacks.finding import Finding
from privsql.attacks.suite import Adversary
from privsql.errors import UsageError
from privsql.mechanisms.permute.checks import read
from privsql.mechanisms.permute.parameters import extent
from privsql.mechanisms.permute.scale import on_axis, scale

if TYPE_CHECKING:
    from collections.abc import Callable

    from privsql.attacks.scene import ReleaseView
    from privsql.attacks.suite import Learnt
    from privsql.mechanisms.permute.axis import Ints
    from privsql.mechanisms.permute.contents import Contents
    from privsql.mechanisms.permute.parameters import Extent
    from privsql.mechanisms.permute.scene import Permuted

POOR = "groups with few or near values"
POOR_KNOWS = "the person's quasi-identifiers; looks for groups with fewer than k values, or a range below e"
EXACT = "best exact guess"
EXACT_KNOWS = "the person's quasi-identifiers; guesses the commonest value of the group"
NEAR = "guess within a distance"
NEAR_KNOWS = "the person's quasi-identifiers; guesses the range of values that most of the group lies in"
TOO_LARGE = "too many groups and values to be learnt from"


def poor(scene: Permuted) -> list[Finding]:
    """The promise itself: share of the groups that are not (k,e)-anonymous."""
    number, held = scene.contents.groups, len(scene.unfine)
    notes = (f"{held:,} groups are not (k,e)-anonymous",) if held else ()
    return [Finding(POOR, POOR_KNOWS, promised=True, attacked=number, unit="groups", above=held / number, notes=notes)]


def exact(scene: Permuted) -> list[Finding]:
    """Belief in the commonest value of the group of every record; how many values are certain, or above 1/2."""
    tally = scene.tally()
    for block in scene.blocks():
        tally.add(block, np.broadcast_to(block.prior, block.shape))
    held = scene.contents
    most = np.zeros(held.groups, dtype=np.int64)
    np.maximum.at(most, held.group, held.records)
    sizes = held.sizes
    certain, likely = (int(sizes[chosen].sum()) for chosen in (most == sizes, 2 * most > sizes))
    notes = (f"{certain:,} records' values are certain, {likely:,} are believed beyond 1/2",)
    return [Finding(EXACT, EXACT_KNOWS, promised=False, baseline=scene.baseline, notes=notes, **tally.figures())]


def near(view: ReleaseView, scene: Permuted) -> list[Finding]:
    """Belief that a record's value lies within the distance of the best guess; by default e."""
    asked = read(view.manifest)
    distance = asked.e if view.within is None else _distance(view.within)
    found = scale(view.manifest.sensitive, distance)
    field = view.manifest.sensitive[0].name
    units, width, _ = on_axis(scene.all("privsql_values").sort_by("code")[field].combine_chunks(), found, distance)
    held, sizes = scene.contents, scene.contents.sizes
    best = covered(held, reached(units, 2 * width))
    everyone = np.cumsum(held.totals)
    reach = reached(units, 2 * width)
    alone = max(int(everyone[high] - (everyone[low - 1] if low else 0)) for low, high in enumerate(reach))
    return [
        Finding(
            f"{NEAR} of {distance}",
            NEAR_KNOWS,
            promised=False,
            attacked=int(sizes.sum()),
            mean=float(best.sum() / sizes.sum()),
            highest=float((best / sizes).max()),
            baseline=alone / int(sizes.sum()),
        )
    ]


def _distance(given: str) -> Extent:
    try:
        return extent(given)
    except ValueError as error:
        raise UsageError(f"--within: {error}") from error


def reached(units: list[int], width: int) -> list[int]:
    """For each of the rising values the last one that is at most ``width`` above it.

    >>> reached([0, 3, 4, 9], 4)
    [2, 2, 2, 3]
    """
    found, last = [], 0
    for low in units:
        while last + 1 < len(units) and units[last + 1] - low <= width:
            last += 1
        found.append(last)
    return found


def covered(held: Contents, reach: list[int]) -> Ints:
    """Records of every group in the window of values that holds most of them (B,)."""
    key = held.group * held.values + held.code  # ascends: contents lie by group and code
    last = np.searchsorted(key, held.group * held.values + np.array(reach)[held.code], side="right")
    running = np.append(0, np.cumsum(held.records))
    most = np.zeros(held.groups, dtype=np.int64)
    np.maximum.at(most, held.group, running[last] - running[: len(key)])
    return most


def _if_small(one: Adversary[Permuted]) -> Adversary[Permuted]:
    """The adversary, who learns from the channel only where that can be held."""

    def attack(learnt: Learnt[Permuted]) -> list[Finding]:
        if learnt.scene.contents.is_small:
            return one.attack(learnt)
        return [Finding(one.name, one.knows, one.promised, applies=False, notes=(TOO_LARGE,))]

    return Adversary(one.name, one.knows, one.promised, attack)


def _on_scene(attack: Callable[[Permuted], list[Finding]]) -> Callable[[Learnt[Permuted]], list[Finding]]:
    return lambda learnt: attack(learnt.scene)


def _near(learnt: Learnt[Permuted]) -> list[Finding]:
    return near(learnt.view, learnt.scene)


ADVERSARIES: tuple[Adversary[Permuted], ...] = (
    Adversary(POOR, POOR_KNOWS, promised=True, attack=_on_scene(poor)),
    order.ADVERSARY,
    identifiers.ADVERSARY,
    absence.adversary(lambda _: None),
    Adversary(EXACT, EXACT_KNOWS, promised=False, attack=_on_scene(exact)),
    Adversary(NEAR, NEAR_KNOWS, promised=False, attack=_near),
    _if_small(learning.ADVERSARY),
    _if_small(identifiers.GIVING),
)
