"""What a release of any noisy tree says of itself."""

from __future__ import annotations

from pydantic import Field

from privsql.mechanisms import private


class Facts(private.Facts):
    """What a manifest states of a tree: nothing but what follows from the published tables."""

    partitions: int = Field(ge=0)
    imputed: int = Field(ge=0)
    estimated_records: float


def stand_ins_alone(kept: int, what: str) -> list[str]:
    """What to warn of where the noise left nothing: only the number of all records is known then."""
    told = "whatever is asked of less than all records rests on stand-ins alone and has no interval"
    return [] if kept else [f"no {what} was kept: {told}; a larger epsilon keeps more"]
