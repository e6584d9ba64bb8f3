"""Read the budget and the law of noise of a differentially private release from its parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from privsql.dp_random import CONCENTRATED, PURE, NoiseLaw, concentrated_rho

if TYPE_CHECKING:
    from fractions import Fraction


def find_law(params: Any) -> NoiseLaw:
    """Return the law of the noise: Laplace, or Gaussian where ``delta`` allows it and it is smaller.

    The noise of T tables grows with T under the Laplace law, and with sqrt(T) under the Gaussian law. So Laplace noise
    is smaller for few tables: for less than about ln(1/delta). T is the largest number of tables that the parameters
    allow, which is public. Parameters that state no such number get Gaussian noise wherever there is a delta.
    """
    asked, tables = getattr(params, "noise", "auto"), getattr(params, "most_tables", None)
    if not getattr(params, "delta", 0) or asked == "laplace":
        return PURE
    if tables is None or asked == "gaussian":
        return CONCENTRATED
    budgets = {PURE: params.epsilon, CONCENTRATED: concentrated_rho(params.epsilon, params.delta)}
    return min(budgets, key=lambda law: law.mean_noise(budgets[law] / tables))


def person_budget(params: Any) -> Fraction:
    """Return the budget that all published records of one person spend together.

    It is epsilon under Laplace noise. Under Gaussian noise it is rho, the budget of zero-concentrated differential
    privacy that implies (epsilon, delta). If each person has one record, or the table names no persons, this is the
    budget of a record.
    """
    return concentrated_rho(params.epsilon, params.delta) if find_law(params).concentrated else params.epsilon


def total_budget(params: Any) -> Fraction:
    """Return the budget that all noisy tables and private choices together may spend on one record.

    The budget is an epsilon under Laplace noise, and a rho (zero-concentrated differential privacy) under Gaussian
    noise. If persons have k records, it is epsilon / k or rho / k^2. Two sources that differ in k records are k steps
    apart. Over these steps epsilons add up, and so do the square roots of rho (group privacy; Bun, Steinke, TCC 2016,
    proposition 27). So the noise is k times as large.
    """
    records = max_records(params)
    return person_budget(params) / (records**2 if find_law(params).concentrated else records)


def max_records(params: Any) -> int:
    """Return the most records of one person that the release uses, as its parameters state; 1 if they state none."""
    return int(getattr(params, "max_records", 1))


def protected_unit(params: Any) -> str:
    """Return in words what the guarantee protects: a record, or a person with at most k records."""
    records = max_records(params)
    return "record" if records == 1 else f"person, of at most {records} records,"
