"""What a publisher asks of a contingency table: frozen, validated, exact."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from pydantic import Field, field_validator

from privsql.engine.names import fold
from privsql.mechanisms.noisytree import release
from privsql.mechanisms.noisytree.release import ALLOW_EMPTY
from privsql.model.parameters import Epsilon, Parameters, Positive, Share
from privsql.model.universe import Universe


class Values(Universe):
    """The values that a column may hold, and how they are grouped.

    A public list, a ``query`` or ``data`` as in ``Universe``, grouped by the fan-out; or ``taxonomy``: a query for the
    pairs (value, parent) of a tree, whose leaves are the values.
    """

    taxonomy: str | None = None

    @property
    def sources(self) -> int:
        """How many sources are given; one is needed."""
        return super().sources + (self.taxonomy is not None)


class Facts(release.Facts):
    """What the manifest of such a release states of its tree."""

    values: int = Field(ge=1)
    cells: int = Field(ge=0)
    not_covered: list[str]


class Contingency(Parameters):
    """A differentially private contingency table: one record changes no probability by more than e^epsilon.

    ``domains``: by column, its values. ``choice``: what the choice of the column takes of an expansion's budget.
    Thresholds are the least with which, in expectation, at most ``tau`` (``tau_cells`` where they are cells) empty
    sub-partitions of an expansion pass.
    """

    kind: Literal["contingency"] = "contingency"
    algorithm: Literal["diffpart"] = "diffpart"
    epsilon: Epsilon = Field(description="One record more or less changes no probability by more than e^epsilon.")
    domains: dict[str, Values] = Field(
        description="The values of a column: a list, { query = .. }, { taxonomy = .. }, or data."
    )
    fan_out: int = Field(default=10, ge=2, description="Children of a node where no taxonomy is given.")
    choice: Share = Field(
        default=Fraction(1, 4), description="What choosing the next column takes of an expansion's budget."
    )
    tau: Positive = Field(default=Fraction(1, 10), description="Empty parts of an expansion that pass, in expectation.")
    tau_cells: Positive = Field(default=Fraction(1, 4), description="The same where they are cells.")

    allow_empty: bool = Field(default=False, description=ALLOW_EMPTY)

    @field_validator("choice")
    @classmethod
    def _leaves_something(cls, given: Fraction) -> Fraction:
        if given == 1:
            raise ValueError("1 leaves nothing for the counts; choose a share below it")
        return given

    @field_validator("domains")
    @classmethod
    def _named_once(cls, given: dict[str, Values]) -> dict[str, Values]:
        if len({fold(name) for name in given}) < len(given):
            raise ValueError("a column stands twice")
        return given

    def domain(self, name: str) -> Values | None:
        """The values of a column; None where they are not stated."""
        return {fold(key): values for key, values in self.domains.items()}.get(fold(name))


PARAMETERS = Contingency
