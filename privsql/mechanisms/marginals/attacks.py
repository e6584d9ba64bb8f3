"""Attack noisy marginals: the adversary who knows every record but one."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine.sqlfiles import table
from privsql.mechanisms.dp.attacks import attack_noisy_tables
from privsql.mechanisms.marginals.domains import UNITS
from privsql.mechanisms.marginals.tables import SUMS

if TYPE_CHECKING:
    from privsql.attacks.scene import Finding, ReleaseView


def attack_marginals(view: ReleaseView) -> list[Finding]:
    """Find the belief that a record is in the tables, by their counts and sums.

    The noise of a sum spends ``UNITS`` / scale on a record, or the square of that / 2 where it is Gaussian.
    """
    scales = [float(one) for (one,) in view.db.rows(exp.select("scale").from_(table(SUMS, view.database)))]
    concentrated = Fraction(view.manifest.parameters.get("delta", "0")) > 0
    spent = sum((UNITS / one) ** 2 / 2 if concentrated else UNITS / one for one in scales)
    return attack_noisy_tables(view, spent)
