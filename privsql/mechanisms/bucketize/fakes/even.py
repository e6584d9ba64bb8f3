"""Whether fakes can hide all values evenly, and the plan that lets them.

L_x of ``lists`` exist in fractions if and only if the k most frequent values have at most sum_j min(S_j + sigma, k) b_j
S_j/(S_j + sigma) records, for every k (Gale: all values have the same room, so the most frequent ones are the
tightest).
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import InfeasibleError

if TYPE_CHECKING:
    from collections.abc import Callable

    from privsql.mechanisms.bucketize.model import Ints, Plan, Problem, Setting

    Find = Callable[[Problem], Plan]

SHOWN = 8  # values that a message names
TRIED = 8  # sizes, or numbers of fakes, that are tried before nothing is offered


def crowded(counts: Ints, setting: Setting, sigma: int) -> list[int]:
    """The values that are too frequent for ``sigma`` fakes in every bucket to hide them evenly; none if it can be."""
    order = np.argsort(-counts, kind="stable")
    room = [(size + sigma, Fraction(buckets * size, size + sigma)) for size, buckets in setting.items]
    each = sum(space for _, space in room)
    frequent = [value for value, count in enumerate(counts.tolist()) if count > each]
    if frequent:
        return frequent
    total = 0
    for k, value in enumerate(order.tolist(), start=1):
        total += int(counts[value])
        if total > sum(min(listed, k) * space for listed, space in room):
            return [int(other) for other in order[:k]]
    return []


def even(problem: Problem, sigma: int, find: Find) -> Plan:
    """The first plan, by falling size of the largest bucket, that hides all values evenly among ``sigma`` fakes.

    Smaller buckets ask less: no value may have more than 1/(S + sigma) of the records. ``InfeasibleError`` from
    ``find``, or with the values that are too frequent and what would work.
    """
    found, most = _tried(problem, sigma, find)
    if most:
        raise _too_frequent(problem, most, sigma, find)
    return found


def _tried(problem: Problem, sigma: int, find: Find) -> tuple[Plan, list[int]]:
    """A plan and the values that are too frequent for it, if there is none that hides them."""
    found = find(problem)
    while most := crowded(problem.counts, found.setting, sigma):
        smaller = found.setting.sizes[-1] - 1
        if problem.counts.max() * (int(problem.sizes[0]) + sigma) > problem.records or smaller < problem.sizes[0]:
            return found, most
        try:
            found = find(replace(problem, largest=smaller))
        except InfeasibleError:
            return found, most
    return found, []


def _too_frequent(problem: Problem, values: list[int], sigma: int, find: Find) -> InfeasibleError:
    smallest = int(problem.sizes[0])
    shares = {problem.label(i): Fraction(int(problem.counts[i]), problem.records) for i in values}
    names = ", ".join(f"{label} ({float(share):.3g})" for label, share in list(shares.items())[:SHOWN])
    more = f" and {len(shares) - SHOWN} more" if len(shares) > SHOWN else ""
    fewer, size = _fewer_fakes(problem, sigma, find), _smaller_buckets(problem, sigma, find)
    offers = [
        *([f"fake_values = {fewer}"] if fewer else []),
        *([f"buckets of {size} records or more (threshold = '1/{size}')"] if size else []),
        "uneven_fakes = 'state', which publishes how much more certain they are",
    ]
    return InfeasibleError(
        f"{sigma} fake values in buckets of {smallest} or more hide a value evenly only if it has at most "
        f"1/{smallest + sigma} of the records; more frequent: {names}{more}; what works: {' or '.join(offers)}",
        {
            "too_frequent": {label: str(share) for label, share in shares.items()},
            **({"largest_fake_values": fewer} if fewer else {}),
            **({"largest_bucket": size} if size else {}),
        },
    )


def _fewer_fakes(problem: Problem, sigma: int, find: Find) -> int | None:
    """The most fakes that hide all values; None if none do."""
    most = min(sigma - 1, problem.records // int(problem.counts.max()) - int(problem.sizes[0]))
    tried = range(most, max(0, most - TRIED), -1)
    return next((fewer for fewer in tried if _hides(problem, fewer, find)), None)


def _smaller_buckets(problem: Problem, sigma: int, find: Find) -> int | None:
    """The largest S, such that a threshold of 1/S hides all values; None if none does."""
    most = min(int(problem.sizes[0]) - 1, problem.records // int(problem.counts.max()) - sigma)
    for size in range(most, max(1, most - TRIED), -1):
        bounds = (Fraction(1, size),) * len(problem.counts)
        largest = min(problem.largest, 2 * size - 1)
        if _hides(
            replace(problem, thresholds=bounds, smallest=min(problem.smallest, size), largest=largest), sigma, find
        ):
            return size
    return None


def _hides(problem: Problem, sigma: int, find: Find) -> bool:
    try:
        return not _tried(problem, sigma, find)[1]
    except InfeasibleError:
        return False
