"""A publisher's taxonomy of a column: pairs (value, parent) that make one tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.noisytables.measured import Ints


def stated(pairs: Sequence[tuple[str, str | None]], name: str) -> tuple[list[str], list[str], Ints]:
    """Values, inner nodes, and the parents of both, from pairs (value, parent); a root's parent is missing or NULL.

    Behind the values stands one more node below the root, for all that the taxonomy does not list.

    ``UsageError`` unless the pairs make one tree.
    """
    above = {value: parent for value, parent in pairs if parent is not None}
    if len(above) < sum(parent is not None for _, parent in pairs):
        raise UsageError(f"mechanism.domains.{name}: the taxonomy states two parents for one value")
    inner = list(dict.fromkeys(above.values()))
    roots = [node for node in inner if node not in above]
    strange = [value for value, parent in pairs if parent is None and value not in roots]
    if len(roots) != 1 or strange:
        shown = ", ".join(repr(root) for root in [*roots, *strange][:3]) or "none"
        raise UsageError(f"mechanism.domains.{name}: the taxonomy needs one root, above all others; it has {shown}")
    depth = {node: _depth(node, above, name) for node in [*above, *inner]}
    values = [value for value in above if value not in set(inner)]
    inner.sort(key=lambda node: -depth[node])
    position = {node: i for i, node in enumerate([*values, *inner])}
    position |= {node: position[node] + 1 for node in inner}
    parents = [position[above[node]] if node in above else -1 for node in (*values, *inner)]
    parents.insert(len(values), position[roots[0]])
    return values, inner, np.array(parents, dtype=np.int64)


def _depth(node: str, above: dict[str, str], name: str) -> int:
    steps = 0
    while node in above:
        node, steps = above[node], steps + 1
        if steps > len(above):
            raise UsageError(f"mechanism.domains.{name}: the taxonomy goes round in a circle at {node!r}")
    return steps
