"""Attack noisy views: the adversary who knows every record but one."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from privsql.engine.sqlfiles import all_rows, table
from privsql.mechanisms.dp.attacks import attack_noisy_tables
from privsql.mechanisms.views.tables import CHOSEN

if TYPE_CHECKING:
    from privsql.attacks.scene import Finding, ReleaseView


def attack_views(view: ReleaseView) -> list[Finding]:
    """Find the belief that a record is in the tables, by their counts and by what all choices of items spend."""
    budgets = view.db.arrow(all_rows(table(CHOSEN, view.database)))["budget"].to_pylist()
    choices = sum((Fraction(one) for one in budgets if one is not None), start=Fraction(0))
    return attack_noisy_tables(view, float(choices))
