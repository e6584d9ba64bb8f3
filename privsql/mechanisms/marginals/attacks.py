"""Attack noisy marginals as an adversary who knows every record but one."""

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
    """Find how sure an adversary who knows all other records can become that the last one is in the counts and sums.

    The budgets that noisy sums spend are computed from their published scales of noise. Values are added up in units of
    which ``UNITS`` make a column's whole range. So a sum with Laplace noise of scale s spends the epsilon ``UNITS`` / s
    on a record. One with Gaussian noise spends (``UNITS`` / s)^2 / 2 in rho (zero-concentrated differential privacy).
    """
    scales = [float(one) for (one,) in view.db.rows(exp.select("scale").from_(table(SUMS, view.database)))]
    concentrated = Fraction(view.manifest.parameters.get("delta", "0")) > 0
    spent = sum((UNITS / one) ** 2 / 2 if concentrated else UNITS / one for one in scales)
    return attack_noisy_tables(view, spent)
