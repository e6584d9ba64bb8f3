"""The facts that plans and releases of DiffPart state, for item sets and for tables."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from privsql.errors import InfeasibleError
from privsql.mechanisms.marginals.parameters import describe_values
from privsql.mechanisms.views.parameters import describe_universe
from privsql.model.parameters import Facts, NoiseOrigin, Version, describe_noise, warn_remaining


class ItemSetTreePlan(Facts):
    """The facts of a tree of item sets that are known before any record is read.

    Records are divided again and again by a taxonomy: a tree that groups the items. ``inner_nodes`` and ``height`` are
    those of the taxonomy. ``first_budget`` and ``first_threshold`` are those of the first parts of the records that are
    counted. With fewer than ``least_records``, publishing is refused.
    """

    epsilon: str
    items: int
    inner_nodes: int
    height: int
    first_budget: str
    first_threshold: int
    least_records: int

    def describe(self) -> list[tuple[str, str]]:
        """Return lines (title, text) for people: how items are grouped, what first counts spend, the records needed."""
        first = (
            f"spends {self.first_budget}, is one of at most {self.inner_nodes:,}, prunes below {self.first_threshold:,}"
        )
        needed = f"{self.least_records:,} at least, or hardly any item set is kept"
        return [_describe_taxonomy(self), ("first expansion", first), ("records", needed)]

    def require_records(self, records: int) -> None:
        """Raise ``InfeasibleError`` if there are so few records that hardly any item set would be kept."""
        if records < self.least_records:
            raise InfeasibleError(
                f"hardly any item set would be kept: the tree over {self.items:,} items needs about "
                f"{self.least_records:,} records at epsilon {self.epsilon}, and there are fewer; algorithm = 'views' "
                "counts every item of any universe. Nothing was drawn"
            )


class ItemSetTreeFacts(Facts):
    """The facts that a release of a tree of item sets states; they follow from its published tables.

    Records were divided into ``partitions`` by a tree that groups the items. The undivided ones are published as
    ``item_sets``, with a noisy number of ``kept_records`` of all ``estimated_records``.
    """

    title: ClassVar = "tree"

    items: int = Field(ge=1)
    inner_nodes: int = Field(ge=1)
    partitions: int = Field(ge=0)
    item_sets: int = Field(ge=0)
    estimated_records: int
    kept_records: int  # the part of these in the published sets
    universe_is_public: bool
    noise: NoiseOrigin
    opendp: Version

    def describe(self) -> list[tuple[str, str]]:
        """Return lines (title, text) for people: the grouping of items, the item sets, whether items are protected."""
        sets = f"{self.item_sets:,} with {self.kept_records:,} of about {self.estimated_records:,} records"
        return [
            _describe_taxonomy(self),
            ("item sets", sets),
            describe_universe(public=self.universe_is_public),
            describe_noise(self.noise, self.opendp),
        ]

    def list_warnings(self) -> list[str]:
        """Return a warning if the leaves of the tree hold few of the records; otherwise nothing."""
        return warn_remaining(self.item_sets, self.kept_records, self.estimated_records, "item set")


def _describe_taxonomy(facts: ItemSetTreePlan | ItemSetTreeFacts) -> tuple[str, str]:
    return "taxonomy", f"{facts.items:,} items, {facts.inner_nodes:,} inner nodes"


class CellTreePlan(Facts):
    """The facts of a tree over the columns of a table that are known before any record is read.

    The records are divided by one column at a time, at most ``expansions`` times. ``first_choice`` is the budget for
    choosing the first column, ``first_budget`` that for counting the parts. The guarantee does not protect the lists of
    values of the columns ``not_covered``, which were taken from the records.
    """

    epsilon: str
    values: int
    expansions: int
    first_choice: str
    first_budget: str
    not_covered: list[str]

    def describe(self) -> list[tuple[str, str]]:
        """Return lines (title, text) for people: the columns' values, and what the first division of records spends."""
        spent = f"spends {self.first_choice} to choose a column and {self.first_budget} to count"
        first = f"{spent}, is one of at most {self.expansions}"
        return [describe_values(self.values, self.not_covered), ("first expansion", first)]


class CellTreeFacts(Facts):
    """The facts that a release of a tree over the columns of a table states; they follow from its published tables.

    Records were divided into ``partitions`` by one column at a time. The undivided ones are published as ``cells`` (one
    value of every column), with a noisy number of ``kept_records`` of all ``estimated_records``.
    """

    title: ClassVar = "tree"

    values: int = Field(ge=1)
    partitions: int = Field(ge=0)
    cells: int = Field(ge=0)
    estimated_records: int
    kept_records: int  # the part of these in the published cells
    not_covered: list[str]
    noise: NoiseOrigin
    opendp: Version

    def describe(self) -> list[tuple[str, str]]:
        """Return lines (title, text) for people: the columns' values, and the published cells with their records."""
        cells = f"{self.cells:,} with {self.kept_records:,} of about {self.estimated_records:,} records"
        return [
            describe_values(self.values, self.not_covered),
            ("cells", cells),
            describe_noise(self.noise, self.opendp),
        ]

    def list_warnings(self) -> list[str]:
        """Return a warning if the leaves of the tree hold few of the records; otherwise nothing."""
        return warn_remaining(self.cells, self.kept_records, self.estimated_records, "cell")
