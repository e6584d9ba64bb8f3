"""Parameters and facts of randomization: frozen, validated, exact."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Literal

from pydantic import ConfigDict, Field, model_validator

from privsql.model.parameters import Facts, Parameters, Share


class Randomize(Parameters):
    """Restricted (rho1, rho2)-privacy: Pr[X = x] <= rho1 implies Pr[X = x | Y = y] <= rho2.

    ``up`` perturbs the whole table over all its values; ``pp`` first partitions it into sub-tables with small domains
    and perturbs each over its own. 1 - ``delta`` is the confidence of the error bound (Chaytor and Wang, PVLDB 2010,
    equation 12). The partition has the smallest such ``bound``; or, by default, the smallest expected squared ``error``
    of answers among those whose bound exceeds neither that of the paper's procedure nor that of the whole table.
    ``pp-paper`` is that procedure itself: one order by reverse Cuthill-McKee, and the best runs of neighbours in it.

    ``gamma_from = "rho1"`` takes the amplification of ``up`` from rho1 (equation 6), as the paper's Example 1 does.
    Otherwise it follows from the largest frequency of a protected value, which is never more (equation 9).
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    kind: Literal["randomize"] = "randomize"
    algorithm: Literal["up", "pp", "pp-paper"] = "pp"
    rho1: Share = Field(description="Values of at most this frequency are protected.")
    rho2: Share = Field(description="What belief in a protected value may reach.")
    delta: Share = Field(default=Fraction(1, 20), description="1 - delta is the confidence of the error bound.")
    objective: Literal["error", "bound"] = Field(default="error", description="What the partition makes small.")
    gamma_from: Literal["rho1"] | None = Field(
        default=None, description="With up: gamma follows from rho1, not from the largest protected frequency."
    )

    @model_validator(mode="after")
    def _require_consistent(self) -> Randomize:
        if self.rho1 >= self.rho2:
            raise ValueError(
                f"rho1 {self.rho1} must be below rho2 {self.rho2}: it bounds the prior, rho2 the posterior"
            )
        if self.rho2 == 1:
            raise ValueError("rho2 = 1 bounds nothing; choose a posterior below 1")
        if self.delta == 1:
            raise ValueError("delta = 1 leaves no confidence; choose less, such as 0.05")
        if self.gamma_from is not None and self.algorithm != "up":
            raise ValueError("gamma_from = 'rho1' needs algorithm = 'up': each sub-table has a rho1 of its own")
        return self

    @property
    def declared_rho1(self) -> Fraction | None:
        """Return the rho1 from which gamma follows; None where it follows from frequencies."""
        return self.rho1 if self.gamma_from == "rho1" else None


class RandomizeFacts(Facts):
    """The facts of a release: its partition.

    ``bound`` is the weighted error bound sum_j (|T_j|/n) eps_j, ``bound_up`` that of the whole table, ``retention``
    the average probability sum_j (|T_j|/n) p_j that a value is retained, ``subtables`` their number.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    title: ClassVar = "partition"

    subtables: int = Field(ge=1)
    groups: int = Field(ge=1)
    bound: float = Field(gt=0)
    bound_up: float = Field(gt=0)
    retention: float = Field(gt=0, lt=1)
    retention_up: float = Field(gt=0, lt=1)
    optimal: bool

    def describe(self) -> list[tuple[str, str]]:
        """Return sub-tables, retention and bound beside those of the whole table."""
        return [
            ("sub-tables", f"{self.subtables} of {self.groups} groups{', the best possible' if self.optimal else ''}"),
            ("retention", f"{self.retention:.1%}  (whole table {self.retention_up:.1%})"),
            ("error bound", f"{self.bound:.4g}  (whole table {self.bound_up:.4g})"),
        ]


class PlannedSubTable(Facts):
    """A sub-table of a plan: public parameters, and the records of each value in the initial groups that it unites."""

    records: int
    values: int
    rho1: str
    gamma: str
    retention: float
    groups: list[dict[str, int]]


class RandomizePlan(RandomizeFacts):
    """The facts of a partition, and for the publisher alone the partition itself."""

    partition: list[PlannedSubTable]

    def tabulate(self) -> list[tuple[object, ...]]:
        """Return m_j, rho1_j, gamma_j and p_j of every sub-table."""
        rows = (
            (j, f"{one.records:,}", one.values, one.rho1, f"{float(Fraction(one.gamma)):.4g}", f"{one.retention:.1%}")
            for j, one in enumerate(self.partition)
        )
        return [("sub-table j", "records", "values m_j", "rho1_j", "gamma_j", "retention p_j"), *rows]


PARAMETERS = Randomize
