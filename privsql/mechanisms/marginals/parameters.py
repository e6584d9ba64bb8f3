"""Parameters and facts of contingency tables: frozen, validated, exact."""

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
WITHIN = 64  # whole numbers that stand for a bin, at most
OWN = {
    "marginals": {"workload", "measures", "noise", "pairs", "max_cells", "delta"},
    "diffpart": {"fan_out", "choice", "score", "tau", "tau_cells"},
}


class Values(Universe):
    """The values that a column may hold, and how they are grouped.

    A public list, a ``query`` or ``data`` as in ``Universe``, grouped by the fan-out; or ``taxonomy``: a query for the
    pairs (value, parent) of a tree, whose leaves are the values; or ``bins`` of a number: edges e_0 < e_1 < .. of bins
    [e_0, e_1), [e_1, e_2) .., or { from = .., to = .., by = .. }. Edges that were taken from the data are marked by
    ``data`` beside them, and are not covered by the guarantee. ``prefix``: of the values of a text that are listed, or
    queried, or occur, so many first characters are published. ``parent``: another column, which the values determine:
    the taxonomy has the values of both.
    """

    taxonomy: Query | None = None
    prefix: int | None = Field(default=None, ge=1, le=100, exclude_if=not_)
    parent: str | None = Field(default=None, exclude_if=not_)
    bins: tuple[Exact, ...] | None = None

    @property
    def source_count(self) -> int:
        """Return how many sources are given; one is needed."""
        if self.bins is not None:
            return super().source_count - self.data + (self.taxonomy is not None) + 1
        return super().source_count + (self.taxonomy is not None)

    @property
    def listed_type(self) -> str | None:
        """Return the type of the values that are listed here; of bins that of any number."""
        return super().listed_type if self.bins is None else "DOUBLE"

    @property
    def listing(self) -> tuple[str, bool] | None:
        """Return the query that lists the values, if one does; of a taxonomy they are its leaves."""
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
        """Return the values that are published in place of those that are listed."""
        return tuple(dict.fromkeys(one[: self.prefix] for one in labels))

    @field_serializer("items")
    def _state_items(self, items: tuple[str, ...] | None, info: SerializationInfo) -> tuple[str, ...] | None:
        """State in a release what is published of the values."""
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
    """The facts of marginals that are known without looking at the records: tables, cells and budgets."""

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
        """Return values, tables and noise."""
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
    """The facts of marginals: all of them follow from the published tables.

    ``errors``: by kind of table how its estimates err, learnt from a rehearsal on the tables (``scale_variance``).
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
        """Return values, tables and synthetic rows."""
        chosen = f", {self.chosen} of them chosen" if self.chosen else ""
        rows = f"{self.synthetic:,} synthetic ones, {self.distance:.2%} from the tables of two columns"
        return [
            describe_values(self.values, self.not_covered),
            ("tables", f"{self.cliques:,} of {self.cells:,} cells{chosen}"),
            ("rows", rows),
            describe_noise(self.noise, self.opendp),
        ]


def describe_values(values: int, not_covered: Iterable[str]) -> tuple[str, str]:
    """Return the line that says how many values there are, and which lists of them the guarantee does not cover."""
    leak = ", ".join(not_covered)
    covered = f"those that occur (not covered by the guarantee) in {leak}" if leak else "public"
    return "values", f"{values:,}, {covered}"


class Contingency(Parameters):
    """A differentially private contingency table: one record changes no probability by more than e^epsilon.

    ``marginals``: tables of all columns, of all pairs of them (or of pairs and triples that noise chooses, where
    the budget is small) and of ``workload``, every cell with noise. ``diffpart``: a tree of partitions, most of which
    are pruned (Chen et al. 2011); ``choice``: what the choice of the column takes of an expansion's budget, which goes
    by the ``score`` of its counts: the largest one, the Gini index, or the information gain. Thresholds
    are the least with which, in expectation, at most ``tau`` (``tau_cells`` where they are cells) empty sub-partitions
    of an expansion pass.
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
        """Return what belongs to one algorithm is not asked of another, and a workload names columns that there are."""
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
        """Return how many tables of counts may be measured at most: all records, columns, pairs and the workload."""
        declared = {frozenset(map(fold_name, columns)) for columns in self.workload}
        large = sum(len(columns) > 2 for columns in declared)
        return 1 + len(self.domains) + comb(len(self.domains), 2) + large

    def _check_parent(self, name: str, values: Values) -> None:
        """Raise ``ValueError`` unless the parent of a column is another one with listed values, and no descendant."""
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
        """Return whether sums of a column are measured."""
        return fold_name(name) in map(fold_name, self.measures)

    def domain(self, name: str) -> Values | None:
        """Return the values of a column; None where they are not stated."""
        return {fold_name(key): values for key, values in self.domains.items()}.get(fold_name(name))

    def bin_edges(self, name: str) -> tuple[Fraction, ...]:
        """Return the edges of a column's bins; an empty tuple if it has none."""
        values = self.domain(name)
        return (values.bins if values is not None else None) or ()

    def not_covered(self, names: Iterable[str]) -> list[str]:
        """Return the columns whose values or bins were taken from the data, which the guarantee does not cover."""
        stated = {name: self.domain(name) for name in names}
        return [name for name, values in stated.items() if values is None or values.data]

    def is_coarse(self, name: str, kind: str) -> bool:
        """Return whether a column is published in bins that are too wide to list the values inside of them.

        It is so for bins of a type that is not of whole numbers, and for a bin of more than ``WITHIN`` whole numbers.
        """
        edges = self.bin_edges(name)
        wide = any(ceil(high) - ceil(low) > WITHIN for low, high in pairwise(edges))
        return bool(edges) and (not is_whole_type(kind) or wide)


PARAMETERS = Contingency
