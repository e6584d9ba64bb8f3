"""The parameters that a publisher sets for item sets, and the facts that a release of views states."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from privsql.model.parameters import (
    ALLOW_EMPTY,
    DELTA,
    MAX_RECORDS,
    Delta,
    Epsilon,
    Facts,
    MaxRecords,
    NoiseOrigin,
    Parameters,
    Positive,
    Version,
    describe_noise,
)
from privsql.model.universes import Universe

LARGEST_FAN_OUT = 30  # a sub-partition is a bit mask over the children of a node
TINY_UNIVERSE = 20  # most items of a universe whose every pattern may be counted
MOST_DECLARED = 1_000  # most sets of a workload
OF_TREES = ("fan_out", "c1", "c2", "tau", "tau_sets")  # fields of 'diffpart'


class ViewPlan(Facts):
    """The facts of a release of noisy views that are known before any record is read: tables, cells and budgets.

    A universe of more than ``TINY_UNIVERSE`` items is large. For it, the budget has several possible splits, from which
    the noisy lengths of records choose one.

    Attributes:
        epsilon: The budget of the release.
        items: The number of items of the universe.
        measured_at_most: The most items that the noisy tables have.
        lengths_budgets: For a large universe, the budget of the lengths of records, by split; else empty.
        items_budgets: The same for the budget of the counts of all items.
        tables: The number of noisy tables of a small universe; 0 for a large one.
        cells: The number of counts in these tables.
        tables_budgets: The budget of the noisy tables, by split.
    """

    epsilon: str
    items: int
    measured_at_most: int
    lengths_budgets: tuple[str, ...] = ()
    items_budgets: tuple[str, ...] = ()
    tables: int = 0
    cells: int = 0
    tables_budgets: tuple[str, ...] = ()

    def describe(self) -> list[tuple[str, str]]:
        """Return lines (title, text) for people on the items, and on the tables or their budgets."""
        if not self.items_budgets:
            return [("items", f"{self.items:,}"), ("tables", f"{self.tables:,} with {self.cells:,} counts")]
        parts = zip(self.lengths_budgets, self.items_budgets, self.tables_budgets, strict=True)
        spent = " or ".join(f"{lengths} + {items} + {tables}" for lengths, items, tables in parts)
        return [
            ("items", f"{self.items:,}, all counted, with views of at most {self.measured_at_most} of them"),
            ("budgets", f"lengths of records + items + views, as the lengths imply: {spent}"),
        ]


class ViewFacts(Facts):
    """The facts that a release of noisy views (tables of which of a few items records have) states.

    Attributes:
        items: The number of items of the universe.
        measured: The number of items in the noisy tables.
        tables: The number of noisy tables.
        cells: The number of noisy counts in them.
        sets: The number of different synthetic sets.
        cap: The most items of one record that were counted, if the universe has more than ``TINY_UNIVERSE`` items;
            else 0, as records are counted whole.
        items_budget: The budget of the counts of all items.
        items_scale: The scale of the noise of these counts.
        estimated_records: The estimated number of records.
        universe_is_public: Whether the list of items does not come from the data.
        noise: Where the noise was drawn from.
        opendp: The version of OpenDP.
    """

    title: ClassVar = "release of views"

    items: int = Field(ge=1)
    measured: int = Field(ge=1, le=TINY_UNIVERSE)
    tables: int = Field(ge=1)
    cells: int = Field(ge=1)
    sets: int = Field(ge=0)
    cap: int = Field(ge=0)
    items_budget: str
    items_scale: float
    estimated_records: float
    universe_is_public: bool
    noise: NoiseOrigin
    opendp: Version

    def describe(self) -> list[tuple[str, str]]:
        """Return lines (title, text) for people on what was counted, and on whether the list of items is protected."""
        items = (
            f"{self.items:,}, each with a count; views of {self.measured:,} of them" if self.cap else f"{self.items:,}"
        )
        capped = [("cap", f"{self.cap:,} items of a record are counted, drawn at random from longer ones")]
        return [
            ("items", items),
            *capped[: bool(self.cap)],
            ("counts", f"{self.cells:,} in {self.tables:,} tables; about {self.estimated_records:,.0f} records"),
            ("synthetic", f"{self.sets:,} different sets"),
            describe_universe(public=self.universe_is_public),
            describe_noise(self.noise, self.opendp),
        ]


def describe_universe(*, public: bool) -> tuple[str, str]:
    """Return the line (title, text) that says whether the guarantee covers the list of items."""
    return "universe", "public" if public else "the items that occur (not covered by the guarantee)"


class SetValued(Parameters):
    """Parameters of differentially private item sets: one record changes no probability by more than e^epsilon.

    Algorithms ``views`` and ``basic`` count which of a few items records have; ``workload`` names the item sets that
    matter most to ``views``. The other parameters are for ``diffpart``. It divides the records into parts by the
    taxonomy, a tree of groups of items, until a part holds a single item set. It drops a part whose noisy count is
    below a threshold. With ``c1`` and ``c2``, the thresholds are those of Chen et al. 2011: sqrt(2)*c1/budget for item
    sets, and sqrt(2)*c2*height/budget for other parts, with the height of the divided node in the taxonomy. Without
    them, on average at most ``tau`` empty parts pass (``tau_sets`` empty item sets) if each inner node of the taxonomy
    is divided once.
    """

    kind: Literal["setvalued"] = "setvalued"
    algorithm: Literal["views", "diffpart", "basic"] = "views"
    epsilon: Epsilon = Field(description="Budget: one record changes a probability at most by the factor e^epsilon.")
    delta: Delta = Field(default=Fraction(0), description=DELTA)
    max_records: MaxRecords = Field(default=1, description=MAX_RECORDS)
    universe: Universe = Field(description="Possible items: a list, { query = .. } or data.")
    fan_out: int = Field(default=10, ge=2, le=LARGEST_FAN_OUT, description="Children of a node of the taxonomy.")
    c1: Positive | None = Field(default=None, description="Factor of the paper's threshold of item sets; with c2.")
    c2: Positive | None = Field(default=None, description="Factor of the paper's threshold of other parts; with c1.")
    tau: Positive = Field(default=Fraction(4), description="With diffpart: expected empty parts that pass.")
    tau_sets: Positive = Field(default=Fraction(36), description="With diffpart: expected empty item sets that pass.")
    workload: tuple[tuple[str, ...], ...] = Field(
        default=(), max_length=MOST_DECLARED, description="Item sets that matter most: [['a', 'b'], ['c']]; public."
    )

    allow_empty: bool = Field(default=False, description=ALLOW_EMPTY)

    @model_validator(mode="after")
    def _require_consistent(self) -> SetValued:
        if (self.c1 is None) != (self.c2 is None):
            raise ValueError("c1 and c2 must be given together; leave out both for the automatic rule")
        if self.algorithm != "diffpart":
            fields = type(self).model_fields
            strange = next((name for name in OF_TREES if getattr(self, name) != fields[name].default), None)
            if strange:
                raise ValueError(f"{strange} needs algorithm = 'diffpart'")
        if self.algorithm != "views" and self.workload:
            raise ValueError("workload needs algorithm = 'views'")
        if self.algorithm == "diffpart" and self.delta:
            raise ValueError("delta needs algorithm = 'views' or 'basic'; 'diffpart' is purely private")
        if any(not one or len(set(one)) < len(one) for one in self.workload):
            raise ValueError("workload: a set is empty, or names an item twice")
        return self


PARAMETERS = SetValued
