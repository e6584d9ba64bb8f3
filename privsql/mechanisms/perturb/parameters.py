"""The parameters of randomization that a publisher sets, and the facts that perturbed releases state."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from operator import not_
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from privsql.model.parameters import SMALLEST_EPSILON, Epsilon, Facts, Parameters, Rule, Share
from privsql.model.universes import OTHER, ListedValues

MOST_VALUES = 500
DIGITS = 6  # decimal places of an epsilon that follows from odds
TABLES_ALONE = {"epsilon", "values", "null_is_value", "frequencies", "threshold"}
RECORDS_ALONE = {"delta", "objective", "gamma_from"}


class Randomize(Parameters):
    """Restricted (rho1, rho2)-privacy: a prior belief of at most rho1 in a value becomes at most rho2.

    ``up`` perturbs the whole table: each value is kept with a known probability, or else drawn from all values. ``pp``
    first divides the records into sub-tables with few different values, and perturbs each over its own values.

    The error bound of a division holds with confidence 1 - ``delta`` (Chaytor and Wang, PVLDB 2010, equation 12). With
    ``objective = "bound"``, ``pp`` minimises this bound. By default it minimises the expected squared ``error`` of
    answers, among divisions whose bound exceeds neither that of the paper's procedure nor that of the whole table.
    ``pp-paper`` is the paper's procedure itself: it puts small groups of records into one order (reverse
    Cuthill-McKee), and finds the best unions of neighbours in it.

    The amplification says how many times likelier a record keeps its value than it gets any given other one. For
    ``up``, ``gamma_from = "rho1"`` computes it from rho1 (equation 6), as in Example 1 of the paper. By default it
    follows from the most frequent protected value, whose frequency is at most rho1 (equation 9).

    ``tables`` publishes quasi-identifiers unchanged, and sensitive values only in noisy tables. An attacker who knows
    all else changes the odds of a record's value by a factor of at most e^``epsilon``. That epsilon is stated, or
    follows from rho1 and rho2, or from a ``threshold`` with declared ``frequencies``; it never follows from the
    records.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    kind: Literal["randomize"] = "randomize"
    algorithm: Literal["up", "pp", "pp-paper", "tables"] = "pp"
    rho1: Share | None = Field(default=None, description="Values of at most this frequency are protected.")
    rho2: Share | None = Field(default=None, description="Highest belief in a protected value.")
    epsilon: Epsilon | None = Field(
        default=None, description="With tables: budget. The odds of a record's value change by at most e^epsilon."
    )
    values: tuple[str, ...] = Field(
        default=(),
        exclude_if=not_,
        description="With tables: the public list of sensitive values; all else counts as 'other'.",
    )
    null_is_value: bool = Field(
        default=True, exclude_if=bool, description="With tables: NULL is one more value; false: it is 'other', too."
    )
    frequencies: dict[str, Share] = Field(
        default_factory=dict,
        exclude_if=not_,
        description="With tables: declared shares of values; never compared with the records.",
    )
    threshold: Rule | None = Field(default=None, description="With tables: the same, over declared frequencies.")
    delta: Share = Field(default=Fraction(1, 20), description="One minus the confidence of the error bound.")
    objective: Literal["error", "bound"] = Field(default="error", description="Measure that the partition minimises.")
    gamma_from: Literal["rho1"] | None = Field(
        default=None, description="With up: compute gamma from rho1, not from the largest protected frequency."
    )

    @field_validator("values", mode="before")
    @classmethod
    def _as_texts(cls, values: Any) -> Any:
        return tuple(map(str, values)) if isinstance(values, list | tuple) else values

    @model_validator(mode="after")
    def _require_consistent(self) -> Randomize:
        foreign = RECORDS_ALONE if self.algorithm == "tables" else TABLES_ALONE
        for name in sorted(foreign & self.model_fields_set):
            if getattr(self, name) != type(self).model_fields[name].get_default(call_default_factory=True):
                raise ValueError(f"{name} can't be combined with algorithm = {self.algorithm!r}")
        if self.algorithm != "tables" or self.rho1 is not None or self.rho2 is not None:
            if self.rho1 is None or self.rho2 is None:
                raise ValueError(f"{'rho1' if self.rho1 is None else 'rho2'} is missing; give both")
            if self.rho1 >= self.rho2:
                raise ValueError(
                    f"rho1 {self.rho1} (the prior's bound) must be below rho2 {self.rho2} (the posterior's bound)"
                )
            if self.rho2 == 1:
                raise ValueError("rho2 = 1 bounds nothing; choose a posterior below 1")
            if self.delta == 1:
                raise ValueError("delta = 1 leaves no confidence; choose a smaller value, such as 0.05")
            if self.gamma_from is not None and self.algorithm != "up":
                raise ValueError("gamma_from = 'rho1' needs algorithm = 'up': each sub-table has a rho1 of its own")
        if self.algorithm == "tables":
            self._require_values()
        return self

    def _require_values(self) -> None:
        """Raise ``ValueError`` unless the list of values is valid and exactly one parameter determines epsilon."""
        if not 1 <= len(self.values) <= MOST_VALUES or len(set(self.values)) < len(self.values):
            raise ValueError(f"values: tables need the public list of 1 to {MOST_VALUES} sensitive values, each once")
        if OTHER in self.values:
            raise ValueError(f"values: {OTHER!r} stands for all that are not listed; leave it out")
        stated = [self.epsilon is not None, self.rho1 is not None, self.threshold is not None]
        if sum(stated) != 1:
            raise ValueError("give one of epsilon, rho1 with rho2, and threshold with frequencies")
        if self.null_is_value and self.threshold is not None and self.threshold.slope and OTHER not in self.frequencies:
            raise ValueError(f"threshold: declare the frequency of {OTHER!r}, too, or null_is_value = false")
        if strange := sorted(self.frequencies.keys() - {*self.values, OTHER}):
            raise ValueError(f"frequencies: {strange[0]!r} is not among values")
        if sum(self.frequencies.values()) > 1:
            raise ValueError("frequencies: they add up to more than 1")
        if self.threshold is not None and (missing := [one for one in self.values if one not in self.frequencies]):
            raise ValueError(f"threshold: declare the frequencies of all values, {missing[0]!r} has none")
        if self.spent_epsilon < SMALLEST_EPSILON:
            name, f = max(self.declared_shares.items(), key=lambda one: one[1], default=("", Fraction(0)))
            raise ValueError(
                f"threshold {self.threshold} is too close to {float(f):g}, the frequency of {name!r}, for any epsilon; "
                "raise it, or publish buckets, which can keep such a threshold"
            )

    @property
    def odds_bounds(self) -> tuple[Fraction, Fraction]:
        """Return (rho1, rho2): a prior belief of at most rho1 in a value must become at most rho2.

        Raises:
            TypeError: The parameters state none; only algorithm ``tables`` allows that.
        """
        if self.rho1 is None or self.rho2 is None:
            raise TypeError(self.algorithm)
        return self.rho1, self.rho2

    @property
    def listed(self) -> ListedValues:
        """Return the public list of values that algorithm ``tables`` counts, and the one that stands for all others."""
        return ListedValues(self.values, OTHER, self.null_is_value)

    @property
    def declared_shares(self) -> dict[str, Fraction]:
        """Return the declared frequency of each value, by its text.

        If the publisher declared one for every listed value, the rest of 1 is the frequency of all other values and
        NULL together.
        """
        left = 1 - sum(self.frequencies.values(), start=Fraction(0))
        undeclared = [*[OTHER] * (OTHER not in self.frequencies), *["NULL"] * self.null_is_value]
        known = set(self.values) <= self.frequencies.keys() and undeclared and left > 0
        return {**self.frequencies, **({" or ".join(undeclared): left} if known else {})}

    @property
    def spent_epsilon(self) -> Fraction:
        """Return epsilon for ``tables``: the stated one, or the largest that keeps all bounds on beliefs, rounded down.

        A bound says how much a prior belief may grow: from rho1 to rho2, or from each declared frequency to the largest
        belief that ``threshold`` allows there. The result is 0 if ``threshold`` allows a belief of 1 for every declared
        frequency.
        """
        if self.epsilon is not None:
            return self.epsilon
        if self.threshold is None:
            return _log_odds_ratio(*self.odds_bounds)
        bounds = [(f, self.threshold.threshold_at(f)) for f in self.declared_shares.values() if f < 1]
        return min((_log_odds_ratio(f, most) for f, most in bounds if most < 1), default=Fraction(0))

    @property
    def declared_rho1(self) -> Fraction | None:
        """Return rho1 if the probability of keeping a value is computed from it (``gamma_from``).

        The result is None if it is computed from the frequency of the most frequent protected value.
        """
        return self.rho1 if self.gamma_from == "rho1" else None


def _log_odds_ratio(prior: Fraction, most: Fraction) -> Fraction:
    """Return the epsilon that lets a belief grow from ``prior`` to ``most`` only: logit(most) - logit(prior).

    It is rounded down to ``DIGITS`` decimal places; 0 if it is not positive.
    """
    ratio = most * (1 - prior) / (prior * (1 - most)) if most > 0 else Fraction(0)
    if ratio <= 1:
        return Fraction(0)
    with localcontext() as context:
        context.prec = 50
        exact = (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln()
        return Fraction(math.floor(Fraction(exact) * 10**DIGITS), 10**DIGITS)


class RandomizeFacts(Facts):
    """The facts of a release: how its records are divided into sub-tables.

    Records are first divided into initial groups, in which no protected value is more frequent than in the whole table.
    Each sub-table unites some of these groups.

    Attributes:
        subtables: The number of sub-tables.
        groups: The number of initial groups that they unite.
        bound: The error bound (equation 12).
        bound_up: The error bound of the whole table as one sub-table.
        retention: The mean probability that a record's value is retained, and not drawn anew.
        retention_up: The same for the whole table as one sub-table.
        skew: The mean over all records of (m - 2)/(gamma - 1), for the m values of their sub-table. There a record
            keeps its value gamma times likelier than it gets any given other one.
        optimal: Whether it is proved that no union of the initial groups has a smaller bound.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    title: ClassVar = "partition"

    subtables: int = Field(ge=1)
    groups: int = Field(ge=1)
    bound: float = Field(gt=0)
    bound_up: float = Field(gt=0)
    retention: float = Field(gt=0, lt=1)
    retention_up: float = Field(gt=0, lt=1)
    skew: float = Field(ge=0)
    optimal: bool

    def describe(self) -> list[tuple[str, str]]:
        """Return (title, text) of the lines that a report shows on sub-tables, retention and error bound."""
        least = ", the smallest error bound of all unions" if self.optimal else ""
        united = f"{self.subtables}, united from {self.groups} initial groups{least}"
        return [
            ("sub-tables", united if self.groups > 1 else "1, the whole table"),
            ("retention", f"{self.retention:.1%}  (whole table as one sub-table: {self.retention_up:.1%})"),
            ("error bound", f"{self.bound:.4g}  (whole table as one sub-table: {self.bound_up:.4g})"),
        ]


class PlannedSubTable(Facts):
    """A sub-table of a plan.

    Attributes:
        records: Its number of records.
        values: Its number of different values.
        rho1: The highest frequency of a protected value in it, as an exact text.
        gamma: How many times likelier a record keeps its value than it gets any given other one (amplification), as an
            exact text.
        retention: The probability that a record's value is retained, and not drawn anew.
        groups: For each initial group of records that the sub-table unites, the number of records of each value, by
            text.
    """

    records: int
    values: int
    rho1: str
    gamma: str
    retention: float
    groups: list[dict[str, int]]


class RandomizePlan(RandomizeFacts):
    """The facts of a planned release, with its partition, which only the publisher may see."""

    partition: list[PlannedSubTable]

    def tabulate(self) -> list[tuple[object, ...]]:
        """Return a table of the sub-tables with a row of titles first."""
        rows: list[tuple[object, ...]] = [
            ("sub-table j", "records", "values m_j", "rho1_j", "gamma_j", "retention p_j")
        ]
        for j, one in enumerate(self.partition):
            rho1, gamma = (f"{float(Fraction(exact)):.4g}" for exact in (one.rho1, one.gamma))
            rows.append((j, f"{one.records:,}", one.values, rho1, gamma, f"{one.retention:.1%}"))
        return rows


PARAMETERS = Randomize
