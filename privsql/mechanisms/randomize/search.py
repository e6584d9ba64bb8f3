"""From counts to a partition: what is protected, and the algorithms ``up`` and ``pp``."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import GuaranteeError, InfeasibleError
from privsql.mechanisms.randomize.balance import initial_groups
from privsql.mechanisms.randomize.merge import merged, union
from privsql.mechanisms.randomize.model import Partition, Problem, SubTable, subtable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.randomize.model import Ints
    from privsql.mechanisms.randomize.parameters import Randomize


def problem(counts: Sequence[int], labels: Sequence[str], asked: Randomize) -> Problem:
    """What is to be partitioned; ``InfeasibleError`` if no value is protected, or one value is all there is."""
    n = sum(counts)
    if len(counts) < 2:
        raise InfeasibleError("randomization needs at least 2 sensitive values", {"values": len(counts)})
    protected = [Fraction(count, n) <= asked.rho1 for count in counts]
    if not any(protected):
        rarest = min(range(len(counts)), key=lambda i: counts[i])
        least = Fraction(counts[rarest], n)
        raise InfeasibleError(
            f"no sensitive value has a frequency of at most rho1 = {asked.rho1}, so nothing would be protected; "
            f"the rarest, {labels[rarest]}, has {float(least):.4f}: choose rho1 >= {least}",
            {"rho1": str(asked.rho1), "nearest_rho1": str(least), "value": labels[rarest]},
        )
    return Problem(np.array(counts, dtype=np.int64), np.array(protected), asked.rho2, asked.delta)


def find(asked: Problem, algorithm: str, objective: str = "bound") -> Partition:
    """The partition of ``up`` (the whole table) or ``pp``, checked; its rows are sorted by size, largest first."""
    whole = asked.counts[None]
    if algorithm == "up":
        return Partition(whole, _bound(asked, whole), 1, optimal=True)
    groups = initial_groups(asked.counts, asked.protected)
    labels, optimal = merged(asked, groups, objective)
    parts = union(groups, labels)
    order = sorted(range(len(parts)), key=lambda j: (-int(parts[j].sum()), *(-parts[j]).tolist()))
    united = tuple(groups[labels == j] for j in order)
    return Partition(parts[order], _bound(asked, parts), len(groups), optimal, united)


def _bound(asked: Problem, parts: Ints) -> float:
    """sum_j (|T_j|/n) eps_j of the parameters that are published; inf if there are none."""
    try:
        return sum(subtable(asked, part).error(asked.records, asked.delta) for part in parts)
    except ValueError:
        return float("inf")


def checked(asked: Problem, found: Partition) -> list[SubTable]:
    """The public parameters of every sub-table, in exact arithmetic.

    Raises ``GuaranteeError`` if a partition is not one.
    """
    if (found.parts.sum(axis=0) != asked.counts).any() or (found.parts < 0).any():
        raise GuaranteeError("the sub-tables do not add up to the table")
    try:
        return [subtable(asked, part) for part in found.parts]
    except ValueError as error:
        raise GuaranteeError(str(error)) from error
