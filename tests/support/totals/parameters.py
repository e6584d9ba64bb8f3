"""What a publisher asks of totals, and what a release of them states."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from privsql.model.parameters import Epsilon, Facts, NoiseOrigin, Parameters, Version
from privsql.model.universes import Universe


class Totals(Parameters):
    """The total of every value, or combination of values, of some columns."""

    kind: Literal["totals"] = "totals"
    algorithm: Literal["exact", "noisy"] = "exact"
    domains: dict[str, Universe] = Field(description="Where the values of each column are listed.")
    least: int = Field(default=5, ge=1, description="Fewest records of a total.")
    epsilon: Epsilon = Field(default=1, validate_default=True, description="Budget of a noisy release.")


class TotalsFacts(Facts):
    """What a release of exact totals states."""

    title: ClassVar[str] = "totals"

    totals: int
    smallest: int


class NoisyTotalsFacts(Facts):
    """What a release of noisy totals states."""

    title: ClassVar[str] = "noisy totals"

    totals: int
    noise: NoiseOrigin
    opendp: Version


PARAMETERS = Totals
