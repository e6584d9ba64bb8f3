"""Check noisy tables and noisy trees: budgets in exact fractions, scales, thresholds and stated facts."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache, partial
from math import exp as e_to
from typing import TYPE_CHECKING, Any

import numpy as np

from privsql.attacks.suite import Adversary
from privsql.dp_random import noise_scale
from privsql.engine.sqlfiles import fill, table
from privsql.mechanisms.dp.noisy_tables_release import CLIQUES
from privsql.mechanisms.private import KNOWS, MEMBERSHIP, make_membership_finding
from privsql.model.manifest import BROKEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from privsql.attacks.scene import Finding, ReleaseView
    from privsql.mechanisms.dp.noisy_tables import NoisyTable
    from privsql.mechanisms.dp.noisy_tree import Consistent, NoisyTree
    from privsql.model.manifest import Check, CheckedRelease

    IsLeast = Callable[[int, Fraction, int, bool], bool]

# Tables ---------------------------------------------------------------------------------------------------------------
# Checks of published noisy tables, and what their adversary learns: exact fractions and integers alone.


def check_published(
    release: CheckedRelease[Any, Any],
    what: str,
    read: Callable[[CheckedRelease[Any, Any]], tuple[Any, ...]],
    named: Mapping[str, Callable[..., list[str]]],
) -> list[Check]:
    """Return checks of what was published, which ``read`` reads once; where it can't be read, all have failed.

    ``named``: by name, functions that list what is wrong in the release and in what was read of it.
    """
    once = cache(partial(read, release))

    def run_check(check: Callable[..., list[str]], _: CheckedRelease[Any, Any]) -> list[str]:
        try:
            return check(release, *once())
        except BROKEN as error:
            return [f"the {what} can't be read: {error}"]

    return release.list_checks({name: partial(run_check, check) for name, check in named.items()})


def wrong_total_budget(
    release: CheckedRelease[Any, Any], tables: Sequence[NoisyTable], choices: Fraction = Fraction(0)
) -> list[str]:
    """Return what tables and choices of them, and other ``choices``, spend together, if it is anything but epsilon."""
    total = sum((one.epsilon + (one.choice or 0) for one in tables), start=choices)
    return [] if total == release.params.epsilon else [f"spent {total}, not {release.params.epsilon}"]


def wrong_table_scales(release: CheckedRelease[Any, Any], tables: Sequence[NoisyTable]) -> list[str]:
    """Return tables whose noise has another scale than the least double that spends no more than the stated budget."""
    widths: list[Any] = release.read_view("cliques")["scale"].to_pylist()
    pairs = enumerate(zip(tables, widths, strict=True))
    return [f"clique {k}: scale {width}" for k, (one, width) in pairs if width != noise_scale(one.epsilon)]


def differ_from_due(
    tables: Sequence[NoisyTable], due: Sequence[tuple[tuple[int, ...], Fraction, Fraction | None]]
) -> list[str]:
    """Tables that are not those that are due: (columns, epsilon, what choosing them spent)."""
    result = [(one.columns, one.epsilon, one.choice) for one in tables]
    if len(result) != len(due):
        return [f"{len(result)} cliques, {len(due)} are due"]
    pairs = enumerate(zip(result, due, strict=True))
    return [
        f"clique {k}: {measured[1]} on {measured[0]}, due {other[1]} on {other[0]}"
        for k, (measured, other) in pairs
        if measured != other
    ]


# The adversary of a private release ---


def noisy_tables_adversary(chosen: Callable[[ReleaseView], float] = lambda _: 0.0) -> Adversary[Any]:
    """The adversary of noisy tables; ``chosen``: budgets of choices that are published beside them."""
    return Adversary(
        MEMBERSHIP, KNOWS, promised=True, attack=lambda learnt: attack_noisy_tables(learnt.view, chosen(learnt.view))
    )


def attack_noisy_tables(view: ReleaseView, chosen: float) -> list[Finding]:
    """The belief that a record is in the tables, if all noise points the same way.

    A record is counted in one cell of every table, whose noise of scale s makes a count at most e^(1/s) times as
    likely; a choice with budget c is at most e^c times as likely, and those beside the tables e^``chosen`` times.
    """
    rows = view.db.rows(fill("attack/tables", {"cliques": table(CLIQUES, view.database)}))
    exponent = chosen + sum(1 / float(width) + (float(Fraction(choice)) if choice else 0.0) for width, choice in rows)
    epsilon = Fraction(view.manifest.parameters["epsilon"])
    return [make_membership_finding(epsilon, [1 / (1 + e_to(-exponent))] if rows else [], "records")]


# Trees ----------------------------------------------------------------------------------------------------------------
# Checks of a published noisy tree that do not depend on what its partitions are, and share nothing with growing it.

CLOSE = 1e-9  # relative difference of a threshold that doubles may make
SAME = 1e-4  # records: sizes are fitted in doubles


def read_published(release: CheckedRelease[Any, Any], name: str, view: str = "tree") -> list[Any]:
    """Return a column of a published table; parts and nodes are in order, which is a check of its own."""
    result: list[Any] = release.read_view(view)[name].to_pylist()
    return result


def is_cutoff(least: int, empty: int, passing: Fraction, spent: Fraction) -> bool:
    """Return whether ``least`` is ``budget.cutoff`` of the others, up to ``CLOSE``."""
    alpha = float(spent)
    exact = math.log(empty / (float(passing) * (1 + math.exp(-alpha)))) / alpha
    return least >= 1 and least >= exact - CLOSE * least and (least == 1 or least - 1 < exact + CLOSE * least)


def wrong_thresholds(release: CheckedRelease[Any, Any], tree: NoisyTree, is_least: IsLeast) -> list[str]:
    """Rows whose threshold is not the one of their budget, node and kind, or whose size is below it.

    ``is_least`` tells whether a threshold is right for a budget, the node at which the parent was expanded, and
    whether the row is a leaf.
    """
    stated = read_published(release, "threshold")
    wrong = [] if stated[0] is None else ["part 0 was never counted"]
    right = cache(is_least)
    nodes = tree.next[tree.parent].tolist()
    for row, (least, node) in enumerate(zip(stated[1:], nodes[1:], strict=True), start=1):
        kind = tree.budgets[tree.spent[row]], node, bool(tree.leaf[row])
        if least is None or tree.size[row] < least or not right(least, *kind):
            wrong.append(f"part {row}: threshold {least}, size {tree.size[row]}")
    return wrong


def wrong_tree_scales(release: CheckedRelease[Any, Any], tree: NoisyTree, *_others: object) -> list[str]:
    """Rows whose noise has another scale than the least double that spends no more than the stated budget."""
    widths = read_published(release, "scale")
    wrong = [] if widths[0] is None else ["part 0 was never counted"]
    for code, width in sorted(set(zip(tree.spent[1:].tolist(), widths[1:], strict=True)), key=str):
        budget = tree.budgets[code]
        if width != noise_scale(budget):
            wrong.append(f"budget {budget}, scale {width}")
    return wrong


def wrong_weights(
    release: CheckedRelease[Any, Any],
    tree: NoisyTree,
    sizes: Consistent,
    rows: Iterable[tuple[Any, ...]],
    outside: int | None = None,
) -> list[str]:
    """Return parts whose rows (part, number, weight) do not weigh what the fitted tree has there.

    ``outside``: records that lie outside of the tree, as part -1; None if no part is called that.
    """
    target = np.where(tree.leaf, sizes.size, sizes.remainder)
    due = dict(enumerate(target.tolist())) | ({} if outside is None else {-1: float(outside)})
    facts = release.facts
    wrong = wrong_amount("estimated records", facts.estimated_records, float(sizes.size[0]) + (outside or 0))
    wrong += wrong_amount("kept records", facts.kept_records, float(sizes.size[tree.leaf].sum()))
    stand_ins = 0
    for part, number, weight in rows:
        fitted = due.get(part, math.nan)
        stand_ins += number if part in due and part >= 0 and not tree.leaf[part] else 0
        if weight is None or not math.isclose(weight, fitted, rel_tol=SAME, abs_tol=SAME):
            wrong.append(f"part {part} weighs {weight}, fitted {fitted}")
    if stand_ins != facts.imputed:
        wrong.append(f"imputed: stated {facts.imputed}, found {stand_ins}")
    return wrong


def wrong_amount(name: str, stated: float, computed: float) -> list[str]:
    """Return a stated number of records that differs from the computed one, which it rounds to one digit."""
    return [] if abs(computed - stated) <= 0.1 else [f"{name}: stated {stated}, found {computed:.1f}"]
