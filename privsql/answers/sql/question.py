"""Hold questions: a SELECT taken apart into groups, conditions by side of the release, and aggregate functions.

A question counts, adds up or compares the records that meet some conditions. There are two sides of a release:
quasi-identifiers ("qi") and sensitive columns ("sa").
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

from sqlglot import exp

from privsql.answers.sql.grammar import CONNECTIVES, as_written, unwrap_order
from privsql.engine.database import LOOKUPS
from privsql.engine.sqlfiles import Holes, alias_as, all_of, column, fill, table
from privsql.errors import UsageError
from privsql.model.estimates import Estimate, as_number, exact_estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from privsql.engine.database import Relations
    from privsql.model.bins import Bins

# Questions ------------------------------------------------------------------------------------------------------------

Side = Literal["qi", "sa"]
Explained = tuple["exp.Query | str | Callable[[], exp.Query]", str]  # a statement, or what makes it; a formula in words
Kind = Literal["count", "sum", "avg", "min", "max", "median", "distinct", "statistic", "window"]
COUNTS = ("count", "distinct")  # are 0 of nothing
EXACT_ONLY = ("min", "max", "median", "distinct", "statistic")  # of quasi-identifiers
AGGREGATE_NODES: dict[Kind, type[exp.AggFunc]] = {
    "sum": exp.Sum, "avg": exp.Avg, "min": exp.Min, "max": exp.Max, "median": exp.Median
}  # fmt: skip
EXACT = "the release holds the exact answer"


@dataclass(frozen=True)
class Group:
    """Hold one key of GROUP BY: an expression over columns of one side, and its type as the engine names it."""

    side: Side
    term: exp.Expr
    type: str = "VARCHAR"

    @property
    def column(self) -> str:
        """Return the name of the column that the key is; empty if it is any other expression."""
        inner = unwrap_order(self.term)
        return inner.name if isinstance(inner, exp.Column) else ""

    @property
    def expression(self) -> exp.Expr:
        """Return the expression, cast to text if values of its type travel as text (``as_text``)."""
        return exp.cast(self.term, "VARCHAR") if as_text(self.type) else self.term


def as_text(kind: str) -> bool:
    """Return whether values of a type travel as text, because Python has no such infinity or no such year."""
    return kind.startswith(("DATE", "TIME", "INTERVAL", "UUID"))


NUMERIC = "TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER UBIGINT HUGEINT UHUGEINT FLOAT DOUBLE DECIMAL"


def is_number(kind: str) -> bool:
    """Return whether values of a type can be added up."""
    return kind.split("(", maxsplit=1)[0] in (*NUMERIC.split(), "BOOLEAN")


@dataclass(frozen=True)
class Measure:
    """Describe the aggregate function of a question.

    A ``count``, and a ``sum`` or ``avg`` of quasi-identifiers, can be estimated. Some releases also tell the ``sum``,
    ``avg``, ``min``, ``max`` or ``median`` of the sensitive column. If the question names no sensitive column, the
    release holds ``min``, ``max``, ``median``, ``distinct`` (the number of different values) and ``statistic`` exactly.
    The ``operand`` of a ``statistic`` is the aggregate function itself. A ``window`` is computed from the answers to
    others.
    """

    kind: Kind = "count"
    operand: exp.Expr | None = None
    side: Side = "qi"
    share: Fraction = Fraction(1, 2)  # of a median of the sensitive column that is another quantile

    @property
    def column(self) -> str | None:
        """Return the name of the column that is measured; None if it is not a single column."""
        operand = unwrap_order(self.operand)
        return operand.name if isinstance(operand, exp.Column) else None

    def list_rounded(self, bins: Mapping[str, Bins]) -> dict[str | None, Bins]:
        """Return the rounded columns that are measured, each with its bins."""
        if self.operand is None or self.kind == "count":
            return {}
        names = {item.name for item in self.operand.find_all(exp.Column)}
        return {name: bins[name] for name in names if name in bins and bins[name].rounds}

    @property
    def amount(self) -> exp.Expr | None:
        """Return the expression over quasi-identifiers to add up; None for a count."""
        return self.operand if self.side == "qi" else None

    @property
    def function(self) -> exp.Expr:
        """Return the SQL of the aggregate function."""
        if self.kind == "count":
            return exp.Count(this=exp.Star())
        if self.kind == "distinct":
            return exp.Count(this=exp.Distinct(expressions=[self.operand]))
        if self.kind == "statistic" and self.operand is not None:
            return self.operand
        return AGGREGATE_NODES[self.kind](this=self.operand)

    @property
    def empty_figures(self) -> tuple[float | None, float | None, float | None, float | None]:
        """Return (estimate, std_error, low, high) if no record can match: zeros for a count, else NULLs, as in SQL."""
        return (0.0, 0.0, 0.0, 0.0) if self.kind in COUNTS else (None, None, None, None)


@dataclass(frozen=True)
class Lookup:
    """Describe a table of the analyst that is joined to the release on quasi-identifiers.

    Attributes:
        table: Where its copy lies in database ``lookups``.
        names: The parts of the name by which the query calls it.
        alias: Its alias in the query.
        keys: Pairs (column of the table, column of the release) that must be equal.
        columns: The names of its columns.
        keeps_unmatched: Whether records without a row in the table remain (LEFT JOIN).
    """

    table: str
    names: tuple[str, ...]
    alias: str
    keys: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    keeps_unmatched: bool = False

    def inner_name(self, name: str) -> str:
        """Return the name that a column of the lookup has inside privsql, beside the columns of the release."""
        return f"{self.alias}.{name}"


@dataclass(frozen=True)
class CountQuery:
    """A question of one aggregate function.

    Attributes:
        filters: The conditions on one side alone, which are joined by AND.
        terms: The one-sided parts of the other conditions, as (name, expression).
        predicate: The other conditions, over the names of the terms; None if there are none.
        comparison_columns: Columns that the question does not name but is estimated by, so that its error compares
            with that of a question that names them (``Answers.comparison_columns``).
    """

    groups: tuple[Group, ...]
    filters: dict[Side, list[exp.Expr]]
    terms: dict[Side, list[tuple[str, exp.Expr]]]
    predicate: exp.Expr | None = None
    measure: Measure = Measure()
    lookups: tuple[Lookup, ...] = ()
    comparison_columns: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Return whether the question is about no sensitive column, so that the release holds the true answer."""
        return self.measure.side == "qi" and not (
            self.filters["sa"] or self.terms["sa"] or any(group.side == "sa" for group in self.groups)
        )

    def separate_null_amounts(self) -> CountQuery:
        """Group NULL amounts separately so that SUM and AVG ignore them."""
        if self.measure.amount is None:
            return self
        known = exp.Is(this=self.measure.amount, expression=exp.null()).not_()
        terms = [*self.terms["qi"], (f"q_{len(self.terms['qi'])}", known)]
        return replace(self, terms={**self.terms, "qi": terms})

    def join_lookups(self, qit: exp.Table) -> exp.Expr:
        """Return the join of table ``qit`` with the lookups."""
        if not self.lookups:
            return qit
        joined = exp.select(exp.Column(this=exp.Star(), table=exp.to_identifier("qit"))).from_(qit.copy().as_("qit"))
        for i, lookup in enumerate(self.lookups):
            alias = f"lookup_{i}"  # the query's own alias could be qit, too
            joined = joined.select(*(alias_as(column(c, alias), lookup.inner_name(c)) for c in lookup.columns))
            on = exp.and_(*(column(theirs, alias).eq(column(ours, "qit")) for theirs, ours in lookup.keys))
            kind = "left" if lookup.keeps_unmatched else "inner"
            joined = joined.join(table(lookup.table, LOOKUPS, "main").as_(alias), on=on, join_type=kind)
        return joined.subquery("qit")


# Conditions -----------------------------------------------------------------------------------------------------------

Filters = dict[Side, list[exp.Expr]]
Terms = dict[Side, list[tuple[str, exp.Expr]]]


def split_parts(root: exp.Expr | None, connective: type[exp.Connector] = exp.And) -> Iterator[exp.Expr]:
    """Yield the conditions that ``root`` joins by AND, or by another connective; nothing if it is None."""
    rest = [root] if root is not None else []
    while rest:
        node = rest.pop()
        if isinstance(node, connective):
            rest += [node.expression, node.this]
        elif isinstance(node, exp.Paren):
            rest.append(node.this)
        else:
            yield node


def sides_of(root: exp.Expr, sides: Mapping[str, Side]) -> set[Side]:
    """Return the sides of all columns in an expression; empty for a constant."""
    return {sides[item.name] for item in root.find_all(exp.Column)}


def split_condition(root: exp.Expr | None, sides: Mapping[str, Side]) -> tuple[Filters, Terms, exp.Expr | None]:
    """Split a condition into the ``filters``, ``terms`` and ``predicate`` of a ``CountQuery``.

    Args:
        root: The condition, whose parts are reused; None if there is none.
        sides: The side of each column, by its name.
    """
    filters: Filters = {"qi": [], "sa": []}
    terms: Terms = {"qi": [], "sa": []}
    about: dict[int, set[Side]] = {}  # by the identity of each part
    for node in reversed(list(root.walk(bfs=True))) if root is not None else ():
        own: set[Side] = {sides[node.name]} if isinstance(node, exp.Column) else set()
        about[id(node)] = own.union(*(about[id(child)] for child in node.iter_expressions()))

    def name_terms(part: exp.Expr) -> exp.Expr:
        """Replace the largest one-sided parts by named terms, in place."""
        if len(about[id(part)]) < 2:
            side: Side = next(iter(about[id(part)]), "qi")
            name = f"{side[0]}_{len(terms[side])}"
            terms[side].append((name, part.copy()))
            return column(name)
        if not isinstance(part, CONNECTIVES):
            compared = "comparing a quasi-identifier with a sensitive column"
            raise UsageError(f"{as_written(part)}: {compared} is not supported")
        for key in ("this", "expression"):
            if part.args.get(key) is not None:
                part.set(key, name_terms(part.args[key]))
        return part

    rest = []
    for part in split_parts(root):
        if len(about[id(part)]) == 2:
            rest.append(name_terms(part))
        else:  # constants count as quasi-identifiers
            filters[next(iter(about[id(part)]), "qi")].append(part)
    return filters, terms, exp.and_(*rest) if rest else None


# Statements ---------------------------------------------------------------------------------------------------------
# A SELECT as count questions, one for each aggregate function, and expressions over their answers.
#
# Groups are named g_0, g_1, .., aggregate functions a_0, a_1, .. and window functions a_1000, ..; outputs, HAVING and
# ORDER BY are expressions over these names.

WINDOWS = 1_000  # the number of the first window function


@dataclass(frozen=True)
class Scope:
    """Hold the records that a SELECT is about, and their groups.

    Attributes:
        groups: The keys of GROUP BY.
        where: The condition on records; None if there is none.
        lookups: The tables that are joined.
        sides: The side of every column, by its name.
    """

    groups: tuple[Group, ...] = ()
    where: exp.Expr | None = None
    lookups: tuple[Lookup, ...] = ()
    sides: Mapping[str, Side] = field(default_factory=dict)

    def make_question(self, measure: Measure | None = None, among: exp.Expr | None = None) -> CountQuery:
        """Return the question about these records.

        Args:
            measure: The aggregate function; None for their number.
            among: A further condition on the records; None if there is none.
        """
        conditions = [part for part in (self.where, among) if part is not None]
        root = exp.and_(*conditions) if conditions else None
        filters, terms, predicate = split_condition(root, self.sides)
        query = CountQuery(self.groups, filters, terms, predicate, measure or Measure(), self.lookups)
        return query if query.is_exact else query.separate_null_amounts()

    def select_groups(self, chosen: Sequence[int]) -> Scope:
        """Return the scope with only the groups of these numbers."""
        return replace(self, groups=tuple(self.groups[i] for i in chosen))


@dataclass(frozen=True)
class AggregateCall:
    """Hold an aggregate function of a query.

    Attributes:
        measure: The function.
        among: The condition of its FILTER; None if there is none.
        written: The function as the query writes it.
    """

    measure: Measure
    among: exp.Expr | None
    written: str

    def as_question(self, scope: Scope) -> CountQuery:
        """Return the question that the function asks about the records of ``scope``."""
        return scope.make_question(self.measure, self.among)

    @property
    def function(self) -> exp.Expr:
        """Return the SQL of the function, with its FILTER."""
        if self.among is None:
            return self.measure.function
        return exp.Filter(this=self.measure.function, expression=exp.Where(this=self.among))


@dataclass(frozen=True)
class Output:
    """Hold a column of the answer: its alias, empty if it has none, and its expression over groups and aggregates."""

    alias: str
    expression: exp.Expr
    written: str
    bound: str = ""  # low, high or std_error: that of the figure in place of the figure

    @cached_property
    def aggregate_numbers(self) -> tuple[int, ...]:
        """Return the numbers of the aggregate functions in the expression."""
        return list_aggregate_numbers(self.expression)

    @cached_property
    def single_aggregate(self) -> int | None:
        """Return the number of the aggregate function if the expression is nothing else; None otherwise."""
        plain = self.expression.unnest()
        return self.aggregate_numbers[0] if isinstance(plain, exp.Column) and self.aggregate_numbers else None


def list_aggregate_numbers(expression: exp.Expr) -> tuple[int, ...]:
    """Return the numbers of the aggregate functions that an expression over an answer uses."""
    names = (item.name for item in expression.find_all(exp.Column))
    return tuple(dict.fromkeys(int(name[2:]) for name in names if name.startswith("a_")))


@dataclass(frozen=True)
class Statement:
    """Hold a SELECT that was taken apart.

    ``sets`` has the grouping sets, as numbers of groups. Without GROUPING SETS it is one set of all groups.
    """

    scope: Scope
    sets: tuple[tuple[int, ...], ...]
    calls: tuple[AggregateCall, ...]
    outputs: tuple[Output, ...]
    having: exp.Expr | None = None
    order: tuple[exp.Ordered, ...] = ()
    limit: int | None = None
    offset: int | None = None
    windows: tuple[exp.Window, ...] = ()  # over groups and aggregates
    qualify: exp.Expr | None = None
    unique: tuple[exp.Expr, ...] | None = None  # of rows with equal values of these the first remains
    previews: bool = False  # outputs are columns of records, of which none is counted

    @property
    def questions(self) -> list[CountQuery]:
        """Return the question of each aggregate function, with all groups."""
        return [one.as_question(self.scope) for one in self.calls]


class Lookups(Protocol):
    """Give access to the tables that may be joined to the release."""

    def find_table(self, names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """Return where the table that a query calls by ``names`` lies, and its columns.

        Raises:
            UsageError: There is no such table.
        """

    def read_rows(self, query: exp.Select) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT over these tables, at most 10,001."""

    def answer_query(self, query: exp.Select) -> tuple[list[tuple[Any, ...]], bool]:
        """Answer a query to the release.

        Returns:
            The rows, without errors and bounds, and whether every row is exact.
        """


# SQL of questions -----------------------------------------------------------------------------------------------------


def group_terms(query: CountQuery, side: Side) -> list[tuple[str, exp.Expr]]:
    """Return the groups and terms of one side as (name, expression); groups are named g_0, g_1, .. in order."""
    groups = [(f"g_{i}", g.expression) for i, g in enumerate(query.groups) if g.side == side]
    return [*groups, *query.terms[side]]


def select_terms(query: CountQuery, side: Side) -> list[exp.Expr]:
    """Return the expressions of ``group_terms`` with their names as aliases, for a SELECT list."""
    return [alias_as(expression.copy(), name) for name, expression in group_terms(query, side)]


def side_holes(query: CountQuery) -> Holes:
    """Return the values to fill into SQL for both sides: terms, filters, the joint predicate and the groups."""
    holes: Holes = {"predicate": query.predicate or exp.true()}
    holes["groups"] = [column(f"g_{i}") for i in range(len(query.groups))]
    for side, filters in query.filters.items():
        holes |= {f"{side}_terms": select_terms(query, side), f"{side}_filter": all_of(filters)}
    return holes


def condition_holes(query: CountQuery) -> Holes:
    """Return the values to fill into SQL that groups the records which meet the conditions on quasi-identifiers."""
    keys = [expression for _, expression in group_terms(query, "qi")]
    return {"terms": select_terms(query, "qi"), "keys": keys, "filter": all_of(query.filters["qi"])}


def observation_holes(query: CountQuery) -> Holes:
    """Return the values to fill into SQL that counts such records and adds up their amounts by published value."""
    groups, amount = [column(name) for name, _ in group_terms(query, "qi")], query.measure.amount
    totals = [alias_as(exp.Sum(this=amount), "amounts")] if amount else []
    return condition_holes(query) | {"groups": groups, "totals": totals, "amounts": [column("amounts")] * len(totals)}


def exact_statement(query: CountQuery, records: exp.Table, functions: Sequence[exp.Expr] = ()) -> exp.Query:
    """Return the SQL for an answer that the table ``records`` holds exactly.

    Args:
        query: The question.
        records: The table.
        functions: The aggregate functions to compute; by default that of the question.
    """
    condition = [*query.filters["qi"], *([query.predicate] if query.predicate is not None else [])]
    measures = [alias_as(one, f"a_{i}") for i, one in enumerate(functions or [query.measure.function])]
    holes: Holes = {"qit": query.join_lookups(records), "filter": all_of(condition), "measure": measures}
    return fill("query/exact", condition_holes(query) | holes)


def exact_answer(db: Relations, query: CountQuery, records: exp.Table) -> list[Estimate]:
    """Compute the rows of an answer that the table ``records`` holds exactly."""
    rows = db.rows(exact_statement(query, records))
    return [exact_estimate(tuple(row[:-1]), None if row[-1] is None else as_number(row[-1])) for row in rows]
