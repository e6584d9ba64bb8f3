"""Context-free taxonomies: members grouped by fan-out, level upon level, to one root."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from privsql.mechanisms.noisytree.consistent import Ints


def levels(items: int, fan_out: int) -> list[Ints]:
    """For every level from the items up, the group (at the next level) of each of its members."""
    groups: list[Ints] = []
    members = items
    while members > 1 or not groups:
        number = -(-members // fan_out)
        groups.append(np.arange(members, dtype=np.int64) // fan_out)
        members = number
    return groups
