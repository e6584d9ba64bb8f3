"""Describe noise and what a tree kept, as facts of differentially private releases state them; their parameters."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Protocol

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from privsql.exact import as_fraction, fraction_text
from privsql.model.parameters import NUMBER

ALLOW_EMPTY = "Publish noise: tables without information, or a tree of which less was kept than pruned."


SMALLEST_DELTA, LARGEST_DELTA = Fraction(1, 10**18), Fraction(1, 10**5)


def _as_delta(value: object) -> Fraction:
    number = as_fraction(value)
    if number and not SMALLEST_DELTA <= number <= LARGEST_DELTA:
        raise ValueError(f"delta {value} is neither 0 nor in [1e-18, 1e-5]")
    return number


Delta = Annotated[Fraction, BeforeValidator(_as_delta), PlainSerializer(fraction_text), WithJsonSchema(NUMBER)]
"""How improbable what epsilon does not bound is; 0: nothing is."""
DELTA = (
    "0: pure differential privacy. Above: (epsilon, delta) by zero-concentrated privacy, with discrete Gaussian noise; "
    "much below one in the number of records, such as 1e-9."
)


class NoisyFacts(Protocol):
    """Facts that state where the noise is from."""

    @property
    def noise(self) -> str:
        """Return "opendp", or "seed" in tests."""

    @property
    def opendp(self) -> str:
        """Return the version of OpenDP."""


def describe_noise(facts: NoisyFacts) -> tuple[str, str]:
    """Return where the noise is from, for a person."""
    return "noise", f"OpenDP {facts.opendp}" if facts.noise == "opendp" else "seeded: NOT private, for tests only"


def warn_remaining(number: int, remaining: float, total: float, what: str) -> list[str]:
    """Return warnings of a tree; ``number``: of ``what`` was kept, ``remaining`` of the ``total`` records are in it."""
    if not number:
        return [f"no {what} was kept: every count is 0; a larger epsilon keeps more"]
    message = f"more was pruned (about {total - remaining:,.0f} records) than kept ({remaining:,.0f})"
    return [f"{message}: sums of counts are too small; a larger epsilon keeps more"] if 2 * remaining < total else []
