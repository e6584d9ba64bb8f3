"""Describe noise and what a noisy tree kept, as facts of differentially private releases state them."""

from __future__ import annotations

from typing import Protocol

ALLOW_EMPTY = "Publish noise: tables without information, or a tree of which less was kept than pruned."


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
