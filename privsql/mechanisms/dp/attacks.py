"""Attack noisy tables as an adversary who knows every record but one."""

from __future__ import annotations

import math
from fractions import Fraction
from math import exp as e_to
from typing import TYPE_CHECKING, Any

from privsql.attacks.scene import Finding, ReleaseView
from privsql.engine.sqlfiles import fill, table
from privsql.mechanisms.dp.tables import CLIQUES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MEMBERSHIP = "membership"  # the adversary against whom the guarantee holds
KNOWS = "every record but one, and asks whether that one is in the table; the belief if all noise points the same way"


def make_membership_finding(params: Mapping[str, Any], exponents: Sequence[float], unit: str) -> Finding:
    """State how sure an attacker who knows all other records becomes that the attacked record is in the table.

    The attacker starts with even odds. A release that is e^L times as likely with the record as without it leads to the
    belief 1/(1 + e^-L). The guarantee promises at most 1/(1 + e^-epsilon).

    Args:
        params: The parameters of the release, which have epsilon.
        exponents: L for each attacked record or person. If it is empty, nothing was attacked.
        unit: What is attacked: ``records`` or ``persons``.
    """
    epsilon, beliefs = Fraction(params["epsilon"]), [1 / (1 + e_to(-one)) for one in exponents]
    if not beliefs:
        return Finding(unit=unit)
    most = 1 / (1 + e_to(-float(epsilon)))
    return Finding(
        attacked=len(beliefs),
        unit=unit,
        mean=sum(beliefs) / len(beliefs),
        highest=max(beliefs),
        above=sum(one > most * (1 + 1e-12) for one in beliefs) / len(beliefs),
        baseline=0.5,
        notes=(f"epsilon {float(epsilon):g} promises at most {most:.1%}",),
    )


# The adversary of a private release ---

RARE = 1_000  # one of so many releases has Gaussian noise that reveals more


def attack_noisy_tables(view: ReleaseView, choices: float) -> list[Finding]:
    """Find how sure an attacker who knows all other records can become that the last one is in the tables.

    The belief is reached if the noise of all tables happens to point the same way.

    Laplace noise: a record is counted in one cell of each table. A table with noise of scale s is at most e^(1/s) times
    as likely with the record. A private choice, such as which table to publish, adds a factor of at most e^c for its
    budget c.

    Gaussian noise allows no such bound. All tables and choices are e^L times as likely with the record, where L is
    normal with mean rho and variance 2 rho. Here rho is the sum of 1/(2 s^2) over the tables, and of the choices'
    budgets. The belief is stated for a value of L that only one of 1,000 releases (``RARE``) exceeds.

    For a person with k records, L of Laplace noise is multiplied by k, and rho by k^2.

    Args:
        view: The release.
        choices: The budget that was spent on anything besides the noisy tables and choosing them.
    """
    from scipy.special import ndtri

    records = view.manifest.parameters.get("max_records", 1)
    rows = view.db.rows(fill("attack/tables", {"cliques": table(CLIQUES, view.database)}))
    spent = sum(float(Fraction(choice)) for _, choice in rows if choice)
    if Fraction(view.manifest.parameters.get("delta", "0")):
        rho = records**2 * (choices + spent + sum(1 / (2 * float(width) ** 2) for width, _ in rows))
        exponent = rho + math.sqrt(2 * rho) * -float(ndtri(1 / RARE))
    else:
        exponent = records * (choices + spent + sum(1 / float(width) for width, _ in rows))
    unit = "records" if records == 1 else "persons"
    return [make_membership_finding(view.manifest.parameters, [exponent] if rows else [], unit)]
