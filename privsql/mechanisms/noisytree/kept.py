"""Whether a noisy tree kept enough to be published: where more was pruned, its answers rest on a model alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from privsql.errors import InfeasibleError
from privsql.exact import text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from privsql.mechanisms.noisytree.estimate import Estimator

ALONE = "whatever is asked of less than all records rests on stand-ins alone and has no interval"


def enough(fitted: Estimator, asked: Any, what: str, helps: str) -> dict[str, Any]:
    """The fact that a release states of what was kept: ``kept_records``, as the consistent sizes have them.

    ``InfeasibleError`` if nothing was kept or more was pruned, unless the publisher said that it may be. Only the
    publisher learns of that, and what was drawn stays spent: who repeats until something passes tells more than
    epsilon. ``what``: was kept, ``helps``: what keeps more, in words.
    """
    found: dict[str, object] = {"kept_records": round(fitted.kept, 1)}
    if asked.allow_empty or not fitted.is_mostly_lost:
        return found
    number = int(fitted.tree.leaf.sum())
    pruned = f"more was pruned (about {fitted.lost:,.0f} records) than is in the {number:,} {what}s that were kept"
    raise InfeasibleError(
        f"{f'{pruned} ({fitted.kept:,.0f})' if number else f'no {what} was kept'}, so answers would rest on a model "
        f"alone; a larger epsilon or {helps} would keep more, and --allow-empty (allow_empty = true) publishes it all "
        f"the same; epsilon {text(asked.epsilon)} was drawn and is spent",
        found | {"kept": number, "pruned_records": round(fitted.lost, 1)},
    )


def warned(facts: Mapping[str, Any], number: int, what: str) -> list[str]:
    """What to say of a release that was published all the same; ``number``: what was kept."""
    if not number:
        return [f"no {what} was kept: {ALONE}; a larger epsilon keeps more"]
    kept = facts.get("kept_records")
    if kept is None:  # an earlier version did not state it
        return []
    pruned = facts["estimated_records"] - (facts.get("without_items") or 0) - kept
    told = f"more was pruned (about {pruned:,.0f} records) than kept ({kept:,.0f})"
    return [f"{told}: {ALONE}; a larger epsilon keeps more"] if pruned > kept else []
