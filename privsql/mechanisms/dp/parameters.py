"""Read the budget of a private release from its parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from privsql.dp_random import CONCENTRATED, PURE, NoiseLaw, concentrated_rho

if TYPE_CHECKING:
    from fractions import Fraction


def find_law(params: Any) -> NoiseLaw:
    """Return the law of the noise: pure without a delta, and where pure noise is smaller for all that may be measured.

    Laplace noise of T tables grows with T and Gaussian noise with its root, so few tables are better off without a
    delta: less than about ln(1/delta) of them. T is the largest number of tables that may be measured, which is known
    before anything is; parameters that state none take the delta at its word.
    """
    asked, tables = getattr(params, "noise", "auto"), getattr(params, "most_tables", None)
    if not getattr(params, "delta", 0) or asked == "laplace":
        return PURE
    if tables is None or asked == "gaussian":
        return CONCENTRATED
    budgets = {PURE: params.epsilon, CONCENTRATED: concentrated_rho(params.epsilon, params.delta)}
    return min(budgets, key=lambda law: law.mean_noise(budgets[law] / tables))


def person_budget(params: Any) -> Fraction:
    """Return what a person spends, with all records that were taken: epsilon, or the rho that (epsilon, delta) allows.

    Where one record of each person is taken at most, or persons are not known, it is that of a record.
    """
    return concentrated_rho(params.epsilon, params.delta) if find_law(params).concentrated else params.epsilon


def total_budget(params: Any) -> Fraction:
    """Return what all tables and choices together spend on a record: epsilon / k, or rho / k^2, of k a person.

    Neighbours that differ in k records are k steps apart: pure budgets add up, and the root of rho does (group privacy;
    Bun, Steinke, TCC 2016, proposition 27). Noise is so scaled by k.
    """
    records = max_records(params)
    return person_budget(params) / (records**2 if find_law(params).concentrated else records)


def max_records(params: Any) -> int:
    """Return how many records of a person are taken at most."""
    return int(getattr(params, "max_records", 1))


def protected_unit(params: Any) -> str:
    """Return what is protected, in words: a record, or a person with several."""
    records = max_records(params)
    return "record" if records == 1 else f"person, of at most {records} records,"
