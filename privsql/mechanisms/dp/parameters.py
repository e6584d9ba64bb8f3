"""Describe noise and what a noisy tree kept, as facts of differentially private releases state them."""

from __future__ import annotations

from typing import Protocol

ALLOW_EMPTY = "DiffPart: publish a tree of which nothing was kept, or less than was pruned."
ALONE = "whatever is asked of less than all records rests on stand-ins alone and has no interval"


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


def warn_remaining(number: int, remaining: float, pruned: float, what: str) -> list[str]:
    """Return warnings of a noisy tree; ``number``: of ``what`` was kept, ``remaining`` records are in it."""
    if not number:
        return [f"no {what} was kept: {ALONE}; a larger epsilon keeps more"]
    message = f"more was pruned (about {pruned:,.0f} records) than kept ({remaining:,.0f})"
    return [f"{message}: {ALONE}; a larger epsilon keeps more"] if pruned > remaining else []
