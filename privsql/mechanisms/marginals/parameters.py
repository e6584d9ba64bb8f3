"""The parameters that a publisher sets for a contingency table, and the facts that a release of marginals states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import pairwise
from math import ceil, comb
from operator import not_
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializationInfo, field_serializer, field_validator, model_validator

from privsql.engine.files import fold_name
from privsql.exact import as_fraction, fraction_text
from privsql.model.bins import is_whole_type
from privsql.model.parameters import (
    ALLOW_EMPTY,
    DELTA,
    MAX_RECORDS,
    Delta,
    Epsilon,
    Exact,
    Facts,
    MaxRecords,
    NoiseOrigin,
    Parameters,
    Positive,
    Query,
    Share,
    Version,
    describe_noise,
)
from privsql.model.universes import Universe

MOST_BINS = 10_000
WITHIN = 64  # most whole numbers that represent a bin
OWN = {
    "marginals": {"workload", "measures", "noise", "pairs", "max_cells", "delta"},
    "diffpart": {"fan_out", "choice", "score", "tau", "tau_cells"},
}


class Values(Universe):
    """The values that a column of a contingency table may hold, and how they are grouped.

    One of these sources is given:

    - a public list of values, a ``query`` for one, or ``data`` (the values that occur), as in ``Universe``;
    - ``taxonomy``: a query for the pairs (value, parent) of a tree, whose leaves are the values;
    - ``bins`` of a number: ascending edges, or { from = .., to = .., by = .. }. A bin holds its lower edge, but not its
      upper one. Edges that were taken from the records need ``data = true``; the guarantee does not protect them.

    With ``prefix = n``, only the first n characters of a text are published. ``parent`` names another column whose
    value follows from this one; the taxonomy then lists the pairs (value, value of the parent).
    """

    taxonomy: Query | None = None
    prefix: int | None = Field(default=None, ge=1, le=100, exclude_if=not_)
    parent: str | None = Field(default=None, exclude_if=not_)
    bins: tuple[Exact, ...] | None = None

    @property
    def source_count(self) -> int:
        """Return how many sources of values are given; exactly one is valid."""
        if self.bins is not None:
            return super().source_count - self.data + (self.taxonomy is not None) + 1
        return super().source_count + (self.taxonomy is not None)

    @property
    def listed_type(self) -> str | None:
        """Return the SQL type of the listed values, or DOUBLE for bins; None if the values are not listed here."""
        return super().listed_type if self.bins is None else "DOUBLE"

    @property
    def listing(self) -> tuple[str, bool] | None:
        """Return the query that lists the values, and whether values of its second column are to be left out.

        They are left out for a taxonomy, whose second column lists parents, which are not values themselves. The result
        is None if no query lists the values.
        """
        return super().listing if self.taxonomy is None else (self.taxonomy, True)

    @field_validator("bins", mode="before")
    @classmethod
    def _expand_steps(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        if set(value) != {"from", "to", "by"}:
            raise ValueError("bins are a list of edges, or { from = .., to = .., by = .. }")
        start, end, step = (as_fraction(value[name]) for name in ("from", "to", "by"))
        if step <= 0 or not 0 < (end - start) / step <= MOST_BINS:
            raise ValueError(
                f"bins from {fraction_text(start)} to {fraction_text(end)} by {fraction_text(step)}"
                " gives no bins, or too many"
            )
        number = -(-(end - start) // step)
        return (*(start + step * k for k in range(number)), end)

    def shorten(self, labels: Iterable[str]) -> tuple[str, ...]:
        """Return the first ``prefix`` characters of each label, every text once; all labels if there is no prefix."""
        return tuple(dict.fromkeys(one[: self.prefix] for one in labels))

    @field_serializer("items")
    def _state_items(self, items: tuple[str, ...] | None, info: SerializationInfo) -> tuple[str, ...] | None:
        """Return the listed values as a release publishes them: shortened to the prefix."""
        return self.shorten(items) if info.context and items is not None else items

    @model_validator(mode="after")
    def _require_texts(self) -> Values:
        if self.prefix is not None and (self.bins is not None or self.taxonomy is not None):
            raise ValueError("prefix can't be combined with bins or a taxonomy")
        if self.parent is not None and self.taxonomy is None:
            raise ValueError("parent needs a taxonomy: a query for the pairs (value, value of the parent)")
        return self

    @field_validator("bins")
    @classmethod
    def _require_ascending(cls, edges: tuple[Fraction, ...] | None) -> tuple[Fraction, ...] | None:
        if edges is not None and (not 2 <= len(edges) <= MOST_BINS + 1 or any(a >= b for a, b in pairwise(edges))):
            raise ValueError("bins need two edges or more, each above the one before it")
        return edges


class MarginalPlan(Facts):
    """The facts of a release of marginals that are known before any record is read: its tables, cells and budgets.

    Attributes:
        epsilon: The budget of the release, as an exact text.
        values: The number of values or bins of all columns.
        columns: The number of columns, each of which is counted by itself.
        workload: The number of tables that the workload names.
        pairs: The number of pairs of columns that may be counted.
        cells: The number of cells of all these tables.
        columns_budget: The most that the tables of single columns spend, as an exact text.
        workload_budget: The budget of the workload's tables, as an exact text.
        noise_of_columns: The sum of absolute noise in a single column's table, in records, on average over the columns.
        law: The law of the noise, ``Laplace`` or ``Gaussian``.
        not_covered: The columns whose values were taken from the records, so that the guarantee does not cover them.
    """

    epsilon: str
    values: int
    columns: int
    workload: int
    pairs: int
    cells: int
    columns_budget: str
    workload_budget: str
    noise_of_columns: float
    law: str
    not_covered: list[str]

    def describe(self) -> list[tuple[str, str]]:
        """Return lines (title, text) for people on values, tables, the rule that chooses tables, and noise."""
        asked = f"{self.columns} columns for at most {self.columns_budget}, {self.pairs} pairs of them"
        more = f", {self.workload} declared for {self.workload_budget}" if self.workload else ""
        size = f"{self.noise_of_columns:,.0f} records in a column's own table"
        noise = f"{self.law}, about {size}; refused where there are fewer"
        return [
            describe_values(self.values, self.not_covered),
            ("tables", f"{asked}{more}; {self.cells:,} cells"),
            ("rule", "pairs are chosen where noise leaves few of them worth their budget"),
            ("noise", noise),
        ]


Coefficients = Annotated[list[float], Field(min_length=5, max_length=5)]


class MarginalFacts(Facts):
    """The facts that a release of marginals states; they follow from its published tables.

    Attributes:
        values: The number of values or bins of all columns.
        cliques: The number of noisy tables of counts.
        chosen: How many of them were chosen by private choices.
        cells: The number of cells of these tables.
        synthetic: The number of weighted rows.
        distance: The mean total variation distance of the weighted rows from the tables that the model estimates.
        estimated_records: The estimated number of records.
        errors: For each kind of table, coefficients that correct the variances of errors for what the noise does not
            explain (see ``scale_variance``).
        not_covered: The columns whose values were taken from the records, so that the guarantee does not cover them.
        noise: Where the random numbers of the noise came from.
        opendp: The version of OpenDP that drew the noise.
    """

    title: ClassVar = "marginals"

    values: int = Field(ge=1)
    cliques: int = Field(ge=1)
    chosen: int = Field(ge=0)
    cells: int = Field(ge=0)
    synthetic: int = Field(ge=0)
    distance: float = Field(ge=0)
    estimated_records: float
    errors: dict[str, Annotated[list[Coefficients], Field(min_length=3, max_length=3)]]
    not_covered: list[str]
    noise: NoiseOrigin
    opendp: Version

    def describe(self) -> list[tuple[str, str]]:
        """Return lines (title, text) for people on values, tables, synthetic rows and noise."""
        chosen = f", {self.chosen} of them chosen" if self.chosen else ""
        rows = f"{self.synthetic:,} synthetic ones, {self.distance:.2%} from the tables of two columns"
        return [
            describe_values(self.values, self.not_covered),
            ("tables", f"{self.cliques:,} of {self.cells:,} cells{chosen}"),
            ("rows", rows),
            describe_noise(self.noise, self.opendp),
        ]


def describe_values(values: int, not_covered: Iterable[str]) -> tuple[str, str]:
    """Return the line (title, text) on the number of values, and on the columns whose values are not protected.

    Args:
        values: The number of values of all columns.
        not_covered: The columns whose values were taken from the records.
    """
    leak = ", ".join(not_covered)
    covered = f"those that occur (not covered by the guarantee) in {leak}" if leak else "public"
    return "values", f"{values:,}, {covered}"


class Contingency(Parameters):
    """Parameters of a differentially private contingency table: a record changes a probability at most e^epsilon-fold.

    Algorithm ``marginals`` publishes noisy tables of all single columns, of pairs of columns and of ``workload``. If
    the budget is small, noisy choices select some pairs and triples of columns in place of all pairs.

    Algorithm ``diffpart`` publishes a tree of partitions of the records, most of which are pruned (Chen et al. 2011). A
    partition is expanded (split into parts) along the column whose counts have the best ``score``: the largest count,
    the Gini index, or the information gain. The share ``choice`` of an expansion's budget pays for choosing that
    column. Thresholds prune empty parts: on average at most ``tau`` of them pass in an expansion, or ``tau_cells``
    where the parts are single cells.
    """

    kind: Literal["contingency"] = "contingency"
    algorithm: Literal["marginals", "diffpart"] = "marginals"
    epsilon: Epsilon = Field(description="Budget: one record changes a probability at most by the factor e^epsilon.")
    delta: Delta = Field(default=Fraction(0), description=DELTA)
    max_records: MaxRecords = Field(default=1, description=MAX_RECORDS)
    domains: dict[str, Values] = Field(
        description="Possible values of a column: a list, { query = .. }, { taxonomy = .. }, { bins = .. } or data."
    )
    workload: tuple[tuple[str, ...], ...] = Field(
        default=(), description="Columns whose joint table should be precise: [['sex', 'job', 'age'], ..]."
    )
    measures: tuple[str, ...] = Field(
        default=(),
        exclude_if=not_,
        description="Columns in bins whose SUM and AVG are measured; values are clamped to the ends of the bins.",
    )
    noise: Literal["auto", "laplace", "gaussian"] = Field(
        default="auto",
        exclude_if=lambda noise: noise == "auto",
        description="Law of the noise: auto takes the smaller.",
    )
    pairs: Literal["auto", "all", "chosen"] = Field(
        default="auto", description="Measured: all pairs, or pairs and triples that others predict worst."
    )
    max_cells: int = Field(default=2_000_000, ge=1, description="With marginals: most cells of all tables.")
    fan_out: int = Field(default=10, ge=2, description="Children of a node of the taxonomy.")
    choice: Share = Field(default=Fraction(1, 4), description="With diffpart: share of budget for choosing columns.")
    score: Literal["max", "gini", "gain"] = Field(
        default="max", description="With diffpart: score of columns: largest count, Gini index, gain."
    )
    tau: Positive = Field(default=Fraction(1, 10), description="With diffpart: expected empty parts that pass.")
    tau_cells: Positive = Field(default=Fraction(1, 4), description="With diffpart: expected empty cells that pass.")

    allow_empty: bool = Field(default=False, description=ALLOW_EMPTY)

    @field_validator("choice")
    @classmethod
    def _leaves_something(cls, share: Fraction) -> Fraction:
        if share == 1:
            raise ValueError("1 leaves nothing for the counts; choose a smaller share")
        return share

    @field_validator("domains")
    @classmethod
    def _named_once(cls, domains: dict[str, Values]) -> dict[str, Values]:
        if len({fold_name(name) for name in domains}) < len(domains):
            raise ValueError("a column appears twice")
        return domains

    @model_validator(mode="after")
    def _of_one_algorithm(self) -> Contingency:
        """Refuse parameters of the other algorithm, and names of columns that are not in ``domains``."""
        others = OWN["diffpart" if self.algorithm == "marginals" else "marginals"]
        for name in others & self.model_fields_set:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} can't be combined with algorithm = {self.algorithm!r}")
        if self.algorithm != "marginals" and any(one.bins or one.prefix for one in self.domains.values()):
            raise ValueError(f"bins and prefix do not belong to algorithm = {self.algorithm!r}")
        if self.noise == "gaussian" and not self.delta:
            raise ValueError("noise = 'gaussian' needs a delta, such as delta = '1/1000000000'")
        for name, values in self.domains.items():
            self._check_parent(name, values)
        for columns in self.workload:
            folded = [fold_name(name) for name in columns]
            if len(set(folded)) < len(folded) or len(folded) < 2:
                raise ValueError(f"workload {list(columns)}: name two or more different columns")
            if strange := [name for name in columns if self.domain(name) is None]:
                raise ValueError(f"workload: {strange[0]!r} is not a column of domains")
        for name in self.measures:
            if not self.bin_edges(name):
                raise ValueError(f"measures: {name!r} needs bins in domains, such as {{ bins = [0, 100000] }}")
        if len(set(map(fold_name, self.measures))) < len(self.measures):
            raise ValueError("measures: a column appears twice")
        return self

    @property
    def most_tables(self) -> int:
        """Return the most tables that may be counted: of all records, single columns, pairs, and the workload."""
        declared = {frozenset(map(fold_name, columns)) for columns in self.workload}
        large = sum(len(columns) > 2 for columns in declared)
        return 1 + len(self.domains) + comb(len(self.domains), 2) + large

    def _check_parent(self, name: str, values: Values) -> None:
        """Raise ``ValueError`` unless a column's parent is a column with listed values, and not its descendant."""
        above = [fold_name(name)]
        while values.parent is not None:
            parent = self.domain(values.parent)
            if self.algorithm != "marginals":
                raise ValueError(f"domains.{name}: parent does not belong to algorithm = {self.algorithm!r}")
            if parent is None or parent.bins is not None or parent.prefix is not None:
                raise ValueError(f"domains.{name}: its parent {values.parent!r} has to be a column with listed values")
            if fold_name(values.parent) in above:
                raise ValueError(f"domains.{name}: it can't be below itself")
            if any({above[-1], fold_name(values.parent)} <= set(map(fold_name, one)) for one in self.workload):
                raise ValueError(f"workload: {values.parent!r} follows from {name!r}; leave it out")
            above.append(fold_name(values.parent))
            values = parent

    def is_measured(self, name: str) -> bool:
        """Return whether the release has noisy sums of a column, for SUM and AVG."""
        return fold_name(name) in map(fold_name, self.measures)

    def domain(self, name: str) -> Values | None:
        """Return the possible values that the parameters state for a column; None if they state none."""
        return {fold_name(key): values for key, values in self.domains.items()}.get(fold_name(name))

    def bin_edges(self, name: str) -> tuple[Fraction, ...]:
        """Return the edges of a column's bins; an empty tuple if it has none."""
        values = self.domain(name)
        return (values.bins if values is not None else None) or ()

    def not_covered(self, names: Iterable[str]) -> list[str]:
        """Return those of the named columns whose values or bins were taken from the records.

        The guarantee does not protect these lists of values.
        """
        stated = {name: self.domain(name) for name in names}
        return [name for name, values in stated.items() if values is None or values.data]

    def is_coarse(self, name: str, kind: str) -> bool:
        """Return whether a column has a bin with so many values that only some of them are published.

        If so, which bins meet a condition is found from the edges of bins, not from published values. Such bins hold
        numbers with decimals, or more than ``WITHIN`` whole numbers.

        Args:
            name: The column.
            kind: The type of the column.
        """
        edges = self.bin_edges(name)
        wide = any(ceil(high) - ceil(low) > WITHIN for low, high in pairwise(edges))
        return bool(edges) and (not is_whole_type(kind) or wide)


PARAMETERS = Contingency
