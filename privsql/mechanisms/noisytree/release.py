"""What a release of any noisy tree says of itself."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from privsql.exact import text
from privsql.model.parameters import Version

if TYPE_CHECKING:
    from privsql.dpnoise import CountNoise

RECORD = "Privacy is for one record, added or removed."


class Facts(BaseModel):
    """What a manifest states of a tree: nothing but what follows from the published tables."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    partitions: int = Field(ge=0)
    imputed: int = Field(ge=0)
    estimated_records: float
    noise: Literal["opendp", "seed"]
    opendp: Version


def promise(asked: Any) -> str:
    """Differential privacy, for one record added or removed."""
    return f"epsilon = {text(asked.epsilon)}"


def made_with(noise: CountNoise) -> dict[str, Any]:
    """The facts on where the noise is from."""
    return {"noise": noise.origin, "opendp": version("opendp")}


def stand_ins_alone(kept: int, what: str) -> list[str]:
    """What to warn of where the noise left nothing: only the number of all records is known then."""
    told = "whatever is asked of less than all records rests on stand-ins alone and has no interval"
    return [] if kept else [f"no {what} was kept: {told}; a larger epsilon keeps more"]


def figure(facts: dict[str, Any]) -> tuple[str, str]:
    """The same as a person wants to see it."""
    return "noise", f"OpenDP {facts['opendp']}" if facts["noise"] == "opendp" else "seeded: NOT private, for tests only"
