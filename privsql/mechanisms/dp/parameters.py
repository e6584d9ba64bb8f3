"""The facts that a release with a tree of noisy counts states."""

from __future__ import annotations

from pydantic import Field

from privsql.model.parameters import NoiseFacts

ALLOW_EMPTY = "DiffPart: publish a tree of which nothing was kept, or less than was pruned."


class NoisyTreeFacts(NoiseFacts):
    """What a manifest states of a tree: nothing but what follows from the published tables."""

    partitions: int = Field(ge=0)
    imputed: int = Field(ge=0)
    estimated_records: float
    kept_records: float  # of these, in what was kept
