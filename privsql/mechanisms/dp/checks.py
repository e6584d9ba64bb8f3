"""Check noisy tables and noisy trees: budgets in exact fractions, scales, thresholds and stated facts."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache, partial
from math import exp as e_to
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from privsql.attacks.suite import Adversary
from privsql.dp_random import noise_scale
from privsql.engine.sqlfiles import all_rows, fill, table, temp_table
from privsql.mechanisms import private
from privsql.mechanisms.dp.noisy_tables_release import CLIQUES, MARGINALS
from privsql.mechanisms.private import KNOWS, MEMBERSHIP, make_membership_finding
from privsql.model.manifest import BROKEN, Check, in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlglot import exp

    from privsql.attacks.scene import Finding, ReleaseView
    from privsql.engine.database import Relations
    from privsql.mechanisms.dp.noisy_tables import NoisyTable
    from privsql.mechanisms.dp.noisy_tree import Consistent, NoisyTree
    from privsql.model.manifest import Manifest

    IsLeast = Callable[[int, Fraction, int, bool], bool]

# Tables ---------------------------------------------------------------------------------------------------------------
# Checks of published noisy tables, and what their adversary learns: exact fractions and integers alone.

T = TypeVar("T")


def name_views(db: Relations, database: str | None, *more: str) -> None:
    """Name the tables of a release for its checks, as v_cliques, v_marginals and so on."""
    for name in (CLIQUES, MARGINALS, *more):
        db.create_view(f"v_{name.removeprefix('privsql_')}", all_rows(table(name, database)))


def check_tables(read: Callable[[], T], named: Mapping[str, Callable[[T], list[str]]]) -> list[Check]:
    """Checks of what was measured, which is read once; where it can't be, all have failed."""
    once = cache(read)

    def run_check(check: Callable[[T], list[str]]) -> list[str]:
        try:
            return check(once())
        except BROKEN as error:
            return [f"the tables can't be read: {error}"]

    orders = {"cliques": ["clique"], "marginals": ["clique", "cell"]}
    return [
        *(Check(name, partial(run_check, check)) for name, check in named.items()),
        *(
            Check(f"rows of {name} lie in order, once each", in_order(temp_table(f"v_{name}"), keys, strict=True))
            for name, keys in orders.items()
        ),
    ]


def sum_budgets(tables: Sequence[NoisyTable]) -> Fraction:
    """All that was spent: every table, and every choice of one."""
    return sum((one.epsilon + (one.choice or 0) for one in tables), start=tables[0].epsilon * 0)


def wrong_total_budget(tables: Sequence[NoisyTable], epsilon: Fraction) -> list[str]:
    """Whether tables and choices spend anything but epsilon together."""
    result = sum_budgets(tables)
    return [] if result == epsilon else [f"spent {result}, not {epsilon}"]


def wrong_table_scales(db: Relations, tables: Sequence[NoisyTable]) -> list[str]:
    """Tables whose noise has another scale than the least double that spends no more than the stated budget."""
    widths: list[Any] = db.arrow(all_rows(temp_table("v_cliques")))["scale"].to_pylist()
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

X = TypeVar("X")
A = TypeVar("A")
CLOSE = 1e-9  # relative difference of a threshold that doubles may make
SAME = 1e-4  # records: sizes are fitted in doubles


def check_tree(read: Callable[[], tuple[T, X, A]], named: Mapping[str, Callable[[T, X, A], list[str]]]) -> list[Check]:
    """Checks of a tree, its taxonomy and the parameters, which are read once; where they can't be, all have failed."""
    once = cache(read)

    def run_check(check: Callable[[T, X, A], list[str]]) -> list[str]:
        try:
            return check(*once())
        except (ValueError, IndexError, KeyError, ZeroDivisionError) as error:
            return [f"the tree can't be read: {error}"]

    return [Check(name, partial(run_check, check)) for name, check in named.items()]


def check_tree_tables(
    manifest: Manifest, counts: exp.Query, extra_checks: Sequence[Check], orders: Mapping[str, Sequence[str]]
) -> list[Check]:
    """Checks of the tables: published counts that are not the tree's, a kind's own, rows that lie out of order."""
    return [
        Check("counts are those of the tree", counts),
        *extra_checks,
        *(
            Check(f"rows of {name} lie in order, once each", in_order(temp_table(f"v_{name}"), keys, strict=True))
            for name, keys in orders.items()
        ),
        private.known_opendp(manifest),
    ]


def read_published(db: Relations, name: str, table: str = "v_tree") -> list[Any]:
    """A column of a published table; parts and nodes are in order, which is a check of its own."""
    result: list[Any] = db.arrow(all_rows(temp_table(table)))[name].to_pylist()
    return result


def is_cutoff(least: int, empty: int, passing: Fraction, spent: Fraction) -> bool:
    """Whether ``least`` is ``budget.cutoff`` of the others, up to ``CLOSE``."""
    alpha = float(spent)
    exact = math.log(empty / (float(passing) * (1 + math.exp(-alpha)))) / alpha
    return least >= 1 and least >= exact - CLOSE * least and (least == 1 or least - 1 < exact + CLOSE * least)


def wrong_thresholds(db: Relations, tree: NoisyTree, is_least: IsLeast) -> list[str]:
    """Rows whose threshold is not the one of their budget, node and kind, or whose size is below it.

    ``is_least`` tells whether a threshold is right for a budget, the node at which the parent was expanded, and
    whether the row is a leaf.
    """
    stated = read_published(db, "threshold")
    wrong = [] if stated[0] is None else ["part 0 was never counted"]
    right = cache(is_least)
    nodes = tree.next[tree.parent].tolist()
    for row, (least, node) in enumerate(zip(stated[1:], nodes[1:], strict=True), start=1):
        kind = tree.budgets[tree.spent[row]], node, bool(tree.leaf[row])
        if least is None or tree.size[row] < least or not right(least, *kind):
            wrong.append(f"part {row}: threshold {least}, size {tree.size[row]}")
    return wrong


def wrong_tree_scales(db: Relations, tree: NoisyTree, *_others: object) -> list[str]:
    """Rows whose noise has another scale than the least double that spends no more than the stated budget."""
    widths = read_published(db, "scale")
    wrong = [] if widths[0] is None else ["part 0 was never counted"]
    for code, width in sorted(set(zip(tree.spent[1:].tolist(), widths[1:], strict=True)), key=str):
        budget = tree.budgets[code]
        if width != noise_scale(budget):
            wrong.append(f"budget {budget}, scale {width}")
    return wrong


def wrong_facts(manifest: Manifest, tree: NoisyTree, algorithm: str, extra_facts: Mapping[str, Any]) -> list[str]:
    """Facts of the manifest that are not those of the tree; ``extra_facts``: the ones that a kind of trees adds."""
    wrong = private.wrong_facts(manifest, {**extra_facts, "partitions": len(tree) - 1})
    return wrong if manifest.algorithm == algorithm else [*wrong, f"algorithm {manifest.algorithm}"]


def _wrong_remaining_records(manifest: Manifest, records: float) -> list[str]:
    """How many records are in what was kept, as the manifest states it."""
    stated = manifest.facts["kept_records"]
    return [] if abs(records - stated) < 0.1 else [f"kept records: stated {stated}, found {records:.1f}"]


def wrong_weights(
    manifest: Manifest, tree: NoisyTree, sizes: Consistent, rows: Iterable[tuple[Any, ...]], outside: int | None = None
) -> list[str]:
    """Parts whose rows (part, number, weight) do not weigh what the fitted tree has there, and how many stand in.

    ``outside``: records that lie outside of the tree, as part -1; None if no part is called that.
    """
    target = np.where(tree.leaf, sizes.size, sizes.remainder)
    due = dict(enumerate(target.tolist())) | ({} if outside is None else {-1: float(outside)})
    stated, estimated = manifest.facts["estimated_records"], float(sizes.size[0]) + (outside or 0)
    wrong = [] if abs(estimated - stated) < 0.1 else [f"estimated records: stated {stated}, found {estimated:.1f}"]
    wrong += _wrong_remaining_records(manifest, float(sizes.size[tree.leaf].sum()))
    stand_ins = 0
    for part, number, weight in rows:
        fitted = due.get(part, math.nan)
        stand_ins += number if part in due and part >= 0 and not tree.leaf[part] else 0
        if weight is None or not math.isclose(weight, fitted, rel_tol=SAME, abs_tol=SAME):
            wrong.append(f"part {part} weighs {weight}, fitted {fitted}")
    if stand_ins != manifest.facts["imputed"]:
        wrong.append(f"imputed: stated {manifest.facts['imputed']}, found {stand_ins}")
    return wrong
