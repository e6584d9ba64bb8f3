"""Checks of published noisy tables, and what their adversary learns: exact fractions and integers alone."""

from __future__ import annotations

from fractions import Fraction
from functools import cache, partial
from math import exp as e_to
from typing import TYPE_CHECKING, Any, TypeVar

from privsql.attacks.suite import Adversary
from privsql.dpnoise import scale
from privsql.engine.sqlfiles import all_rows, fill, table, temp
from privsql.mechanisms.noisytables.tables import CLIQUES, MARGINALS
from privsql.mechanisms.private import KNOWS, MEMBERSHIP, membership
from privsql.model.checks import BROKEN, Check, in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from privsql.attacks.finding import Finding
    from privsql.attacks.scene import ReleaseView
    from privsql.engine.database import Relations
    from privsql.mechanisms.noisytables.measured import Measured

T = TypeVar("T")


def views(db: Relations, database: str | None, *more: str) -> None:
    """Name the tables of a release for its checks, as v_cliques, v_marginals and so on."""
    for name in (CLIQUES, MARGINALS, *more):
        db.view(f"v_{name.removeprefix('privsql_')}", all_rows(table(name, database)))


def of_tables(read: Callable[[], T], named: Mapping[str, Callable[[T], list[str]]]) -> list[Check]:
    """Checks of what was measured, which is read once; where it can't be, all have failed."""
    once = cache(read)

    def run(check: Callable[[T], list[str]]) -> list[str]:
        try:
            return check(once())
        except BROKEN as error:
            return [f"the tables can't be read: {error}"]

    orders = {"cliques": ["clique"], "marginals": ["clique", "cell"]}
    return [
        *(Check(name, partial(run, check)) for name, check in named.items()),
        *(
            Check(f"rows of {name} lie in order, once each", in_order(temp(f"v_{name}"), keys, strict=True))
            for name, keys in orders.items()
        ),
    ]


def spent(tables: Sequence[Measured]) -> Fraction:
    """All that was spent: every table, and every choice of one."""
    return sum((one.epsilon + (one.choice or 0) for one in tables), start=tables[0].epsilon * 0)


def overspent(tables: Sequence[Measured], epsilon: Fraction) -> list[str]:
    """Whether tables and choices spend anything but epsilon together."""
    found = spent(tables)
    return [] if found == epsilon else [f"spent {found}, not {epsilon}"]


def wrong_scales(db: Relations, tables: Sequence[Measured]) -> list[str]:
    """Tables whose noise has another scale than the least double that spends no more than the stated budget."""
    widths: list[Any] = db.arrow(all_rows(temp("v_cliques")))["scale"].to_pylist()
    pairs = enumerate(zip(tables, widths, strict=True))
    return [f"clique {k}: scale {width}" for k, (one, width) in pairs if width != scale(one.epsilon)]


def as_due(tables: Sequence[Measured], due: Sequence[tuple[tuple[int, ...], Fraction, Fraction | None]]) -> list[str]:
    """Tables that are not those that are due: (columns, epsilon, what choosing them spent)."""
    found = [(one.columns, one.epsilon, one.choice) for one in tables]
    if len(found) != len(due):
        return [f"{len(found)} cliques, {len(due)} are due"]
    pairs = enumerate(zip(found, due, strict=True))
    return [
        f"clique {k}: {own[1]} on {own[0]}, due {other[1]} on {other[0]}" for k, (own, other) in pairs if own != other
    ]


# The adversary of a private release ---


def adversary(chosen: Callable[[ReleaseView], float] = lambda _: 0.0) -> Adversary[Any]:
    """The adversary of noisy tables; ``chosen``: budgets of choices that are published beside them."""
    return Adversary(MEMBERSHIP, KNOWS, promised=True, attack=lambda learnt: attack(learnt.view, chosen(learnt.view)))


def attack(given: ReleaseView, chosen: float) -> list[Finding]:
    """The belief that a record is in the tables, if all noise points the same way.

    A record is counted in one cell of every table, whose noise of scale s makes a count at most e^(1/s) times as
    likely; a choice with budget c is at most e^c times as likely, and those beside the tables e^``chosen`` times.
    """
    rows = given.db.rows(fill("attack/tables", {"cliques": table(CLIQUES, given.database)}))
    told = chosen + sum(1 / float(width) + (float(Fraction(choice)) if choice else 0.0) for width, choice in rows)
    epsilon = Fraction(given.manifest.parameters["epsilon"])
    return [membership(epsilon, [1 / (1 + e_to(-told))] if rows else [], "records")]
