"""A (k,e)-anonymous release for people: what it promises in sentences, and its groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.permute.contents import contents
from privsql.model.told import LEARNT, Structure, Words, by_range
from privsql.model.told import structure as part

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.mechanisms.permute.parameters import Permute
    from privsql.model.manifest import Manifest

MADE = (
    "Records are put into groups by their sensitive value, and within a group the values are shuffled: it is published "
    "who is in a group and which values the group has, not who has which."
)
SEVERAL = (
    "Against people who combine several releases about the same persons, but for releases of a growing table that were "
    "made with the earlier ones in view: privsql verify --against compares these."
)
NOT = (
    "A bound on the belief in a single value: a value that most of a group have is believed of each of them.",
    "Against people who know the values of others in the group.",
    LEARNT,
    SEVERAL,
    "That somebody is in the table at all, and in which group, is not hidden: the group tells roughly what they have.",
)


def words(asked: Permute) -> Words:
    """(k,e)-anonymity, in sentences."""
    bound = (
        f"Every group has at least {asked.k} different values, and the largest and the smallest of them are at least "
        f"{asked.e} apart."
    )
    return Words((MADE, bound), NOT)


def structure(db: Relations, manifest: Manifest) -> list[Structure]:
    """Groups by their number of different values, and by their records."""
    held = contents(db, manifest.roles, None)
    values = np.bincount(held.group, minlength=held.groups).tolist()
    found = []
    for title, numbers in (("different values", values), ("records", held.sizes.tolist())):
        rows: list[tuple[object, ...]] = [(name, number) for name, number in by_range(numbers)]
        said = f"The {held.groups:,} groups have {min(numbers):,} to {max(numbers):,} {title}."
        found.append(part(f"Groups by {title}", said, (title, "groups"), rows, 1))
    return found
