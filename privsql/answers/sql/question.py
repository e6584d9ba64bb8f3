"""Define questions: a SELECT taken apart into groups, conditions and aggregate functions.

A question asks for one aggregate function of the records that meet some conditions, by group. Every column belongs to
one of two sides: quasi-identifiers ("qi") or sensitive columns ("sa").
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
COUNTS = ("count", "distinct")  # functions that are 0, not NULL, if there is no record
EXACT_ONLY = ("min", "max", "median", "distinct", "statistic")  # over quasi-identifiers these can't be estimated
AGGREGATE_NODES: dict[Kind, type[exp.AggFunc]] = {
    "sum": exp.Sum, "avg": exp.Avg, "min": exp.Min, "max": exp.Max, "median": exp.Median
}  # fmt: skip
EXACT = "the release holds the exact answer"


@dataclass(frozen=True)
class Group:
    """One expression of GROUP BY.

    Attributes:
        side: The side to which its columns belong, quasi-identifiers ("qi") or sensitive columns ("sa").
        term: The expression.
        type: Its SQL type, as the engine names it.
    """

    side: Side
    term: exp.Expr
    type: str = "VARCHAR"

    @property
    def column(self) -> str:
        """Return the name of the column, if the expression is nothing but a column; otherwise an empty text."""
        inner = unwrap_order(self.term)
        return inner.name if isinstance(inner, exp.Column) else ""

    @property
    def expression(self) -> exp.Expr:
        """Return the expression for SQL.

        It is cast to text if Python can't represent all values of its type (``as_text``).
        """
        return exp.cast(self.term, "VARCHAR") if as_text(self.type) else self.term


def as_text(kind: str) -> bool:
    """Return whether values of an SQL type must be read as texts.

    Python lacks some of these values, such as infinite dates and years beyond 9999.
    """
    return kind.startswith(("DATE", "TIME", "INTERVAL", "UUID"))


NUMERIC = "TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER UBIGINT HUGEINT UHUGEINT FLOAT DOUBLE DECIMAL"


def is_number(kind: str) -> bool:
    """Return whether values of an SQL type can be added up; BOOLEAN counts as a number."""
    return kind.split("(", maxsplit=1)[0] in (*NUMERIC.split(), "BOOLEAN")


@dataclass(frozen=True)
class Measure:
    """The aggregate function of a question.

    ``count``, and ``sum`` and ``avg`` of quasi-identifiers, can be estimated. Some releases also bound the ``sum``,
    ``avg``, ``min``, ``max`` or ``median`` of the sensitive column. If the question names no sensitive column, the
    release holds the exact answer, also for ``distinct`` (the number of different values) and ``statistic`` (any other
    aggregate function). A ``window`` is a window function over the rows of the answer.

    Attributes:
        kind: Which function it is.
        operand: Its argument, or for a ``statistic`` the whole function; None for a count.
        side: Whether the argument is over quasi-identifiers ("qi") or over sensitive columns ("sa").
        share: Which quantile a ``median`` of the sensitive column is; 1/2 for the median itself.
    """

    kind: Kind = "count"
    operand: exp.Expr | None = None
    side: Side = "qi"
    share: Fraction = Fraction(1, 2)

    @property
    def column(self) -> str | None:
        """Return the name of the column that is aggregated; None if the argument is not a single column."""
        operand = unwrap_order(self.operand)
        return operand.name if isinstance(operand, exp.Column) else None

    def list_rounded(self, bins: Mapping[str, Bins]) -> dict[str | None, Bins]:
        """Return the bins of each rounded column that is aggregated, by its name; empty for a count.

        Args:
            bins: The bins of the release, by the name of the column.
        """
        if self.operand is None or self.kind == "count":
            return {}
        names = {item.name for item in self.operand.find_all(exp.Column)}
        return {name: bins[name] for name in names if name in bins and bins[name].rounds}

    @property
    def amount(self) -> exp.Expr | None:
        """Return the expression over quasi-identifiers that is aggregated.

        The result is None for counts and for sensitive columns.
        """
        return self.operand if self.side == "qi" else None

    @property
    def function(self) -> exp.Expr:
        """Return the aggregate function as SQL, such as ``SUM(age)``."""
        if self.kind == "count":
            return exp.Count(this=exp.Star())
        if self.kind == "distinct":
            return exp.Count(this=exp.Distinct(expressions=[self.operand]))
        if self.kind == "statistic" and self.operand is not None:
            return self.operand
        return AGGREGATE_NODES[self.kind](this=self.operand)

    @property
    def empty_figures(self) -> tuple[float | None, float | None, float | None, float | None]:
        """Return (estimate, std_error, low, high) of an empty group: zeros for a count, otherwise NULLs as in SQL."""
        return (0.0, 0.0, 0.0, 0.0) if self.kind in COUNTS else (None, None, None, None)


@dataclass(frozen=True)
class Lookup:
    """A table of the analyst that the query joins to the release by quasi-identifiers.

    Attributes:
        table: The name of its copy in database ``lookups``.
        names: The parts of the name that the query uses for it, such as schema and table.
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
        """Return the unique name that privsql gives to a column of this table, such as ``alias.name``."""
        return f"{self.alias}.{name}"


@dataclass(frozen=True)
class CountQuery:
    """A question for one aggregate function of the records that meet conditions, by group.

    Conditions are split by two sides, quasi-identifiers ("qi") and sensitive columns ("sa"). Many releases hold each
    side in a table of its own.

    Attributes:
        groups: The expressions of GROUP BY.
        filters: For each side, the conditions over columns of that side alone; all of them must hold.
        terms: For each side, the parts of all other conditions that are over that side alone, as (name, expression).
        predicate: All other conditions, written over the names of the terms; None if there are none.
        measure: The aggregate function.
        lookups: The analyst's tables that are joined.
        comparison_columns: For noisy tables, columns that the table must have from which the answer is estimated. Two
            questions that are estimated from the same table have errors that can be compared
            (``Answers.comparison_columns``).
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
        """Return whether the release holds the true answer, because the question is about no sensitive column."""
        return self.measure.side == "qi" and not (
            self.filters["sa"] or self.terms["sa"] or any(group.side == "sa" for group in self.groups)
        )

    def separate_null_amounts(self) -> CountQuery:
        """Return the question with one more expression by which records are told apart: whether the amount is NULL.

        So records whose aggregated amount is NULL, which SUM and AVG ignore, are estimated separately.
        """
        if self.measure.amount is None:
            return self
        known = exp.Is(this=self.measure.amount, expression=exp.null()).not_()
        terms = [*self.terms["qi"], (f"q_{len(self.terms['qi'])}", known)]
        return replace(self, terms={**self.terms, "qi": terms})

    def join_lookups(self, qit: exp.Table) -> exp.Expr:
        """Return the join of table ``qit`` (the published quasi-identifiers) with the analyst's tables."""
        if not self.lookups:
            return qit
        joined = exp.select(exp.Column(this=exp.Star(), table=exp.to_identifier("qit"))).from_(qit.copy().as_("qit"))
        for i, lookup in enumerate(self.lookups):
            alias = f"lookup_{i}"  # not the query's own alias, which could be qit
            joined = joined.select(*(alias_as(column(c, alias), lookup.inner_name(c)) for c in lookup.columns))
            on = exp.and_(*(column(theirs, alias).eq(column(ours, "qit")) for theirs, ours in lookup.keys))
            kind = "left" if lookup.keeps_unmatched else "inner"
            joined = joined.join(table(lookup.table, LOOKUPS, "main").as_(alias), on=on, join_type=kind)
        return joined.subquery("qit")


# Conditions -----------------------------------------------------------------------------------------------------------

Filters = dict[Side, list[exp.Expr]]
Terms = dict[Side, list[tuple[str, exp.Expr]]]


def split_parts(root: exp.Expr | None, connective: type[exp.Connector] = exp.And) -> Iterator[exp.Expr]:
    """Yield the conditions that ``root`` joins by AND, or by another ``connective``; nothing if it is None."""
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
    """Return whether an expression is over quasi-identifiers ("qi"), sensitive columns ("sa"), both or none.

    Args:
        root: The expression.
        sides: Whether each column is a quasi-identifier ("qi") or sensitive ("sa"), by its name.
    """
    return {sides[item.name] for item in root.find_all(exp.Column)}


def split_condition(root: exp.Expr | None, sides: Mapping[str, Side]) -> tuple[Filters, Terms, exp.Expr | None]:
    """Split a condition so that quasi-identifiers and sensitive columns can be evaluated in separate tables.

    Its parts become the ``filters``, ``terms`` and ``predicate`` of a ``CountQuery``. Filters are conditions on one of
    the two kinds of columns alone. All other conditions are cut into terms, pieces on one kind of columns; the
    predicate joins the terms.

    Args:
        root: The condition, whose tree may change; None if there is none.
        sides: Whether each column is a quasi-identifier ("qi") or sensitive ("sa"), by its name.

    Raises:
        UsageError: An expression compares a quasi-identifier with a sensitive column.
    """
    filters: Filters = {"qi": [], "sa": []}
    terms: Terms = {"qi": [], "sa": []}
    about: dict[int, set[Side]] = {}  # the sides of each part, by the identity of its node
    for node in reversed(list(root.walk(bfs=True))) if root is not None else ():
        own: set[Side] = {sides[node.name]} if isinstance(node, exp.Column) else set()
        about[id(node)] = own.union(*(about[id(child)] for child in node.iter_expressions()))

    def name_terms(part: exp.Expr) -> exp.Expr:
        """Replace the largest pieces of a condition that are over one kind of columns alone by names, in place.

        Each piece is added to ``terms`` under its name, to be evaluated in the table that has its columns.
        """
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
    """The part of a SELECT that says which records it is about, and how they are grouped.

    Attributes:
        groups: The expressions of GROUP BY.
        where: The condition on records; None if there is none.
        lookups: The analyst's tables that are joined.
        sides: Whether each column is a quasi-identifier ("qi") or sensitive ("sa"), by its name.
    """

    groups: tuple[Group, ...] = ()
    where: exp.Expr | None = None
    lookups: tuple[Lookup, ...] = ()
    sides: Mapping[str, Side] = field(default_factory=dict)

    def make_question(self, measure: Measure | None = None, among: exp.Expr | None = None) -> CountQuery:
        """Return the question for one aggregate function of these records.

        Args:
            measure: The aggregate function; None for the number of records.
            among: A further condition on the records; None if there is none.
        """
        conditions = [part for part in (self.where, among) if part is not None]
        root = exp.and_(*conditions) if conditions else None
        filters, terms, predicate = split_condition(root, self.sides)
        query = CountQuery(self.groups, filters, terms, predicate, measure or Measure(), self.lookups)
        return query if query.is_exact else query.separate_null_amounts()

    def select_groups(self, chosen: Sequence[int]) -> Scope:
        """Return the same conditions on records, grouped only by the GROUP BY expressions at the indices ``chosen``."""
        return replace(self, groups=tuple(self.groups[i] for i in chosen))


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate function as a query calls it.

    Attributes:
        measure: The function.
        among: The condition of its FILTER; None if there is none.
        written: Its text in the query.
    """

    measure: Measure
    among: exp.Expr | None
    written: str

    def as_question(self, scope: Scope) -> CountQuery:
        """Return the question that asks the release for this aggregate function alone.

        Args:
            scope: The conditions on records and the groups of the SELECT.
        """
        return scope.make_question(self.measure, self.among)

    @property
    def function(self) -> exp.Expr:
        """Return the SQL of the function, with its FILTER."""
        if self.among is None:
            return self.measure.function
        return exp.Filter(this=self.measure.function, expression=exp.Where(this=self.among))


@dataclass(frozen=True)
class Output:
    """A column of the answer.

    Attributes:
        alias: Its alias; empty if it has none.
        expression: What it computes from groups (``g_0``, ..) and aggregate functions (``a_0``, ..).
        written: Its text in the query.
        bound: ``low``, ``high`` or ``std_error`` if the query asks for that alone, not for the estimate; otherwise
            empty.
    """

    alias: str
    expression: exp.Expr
    written: str
    bound: str = ""

    @cached_property
    def aggregate_numbers(self) -> tuple[int, ...]:
        """Return the numbers of the aggregate functions in the expression: 2 for ``a_2``."""
        return list_aggregate_numbers(self.expression)

    @cached_property
    def single_aggregate(self) -> int | None:
        """Return i if the whole expression is the query's i-th aggregate function (column ``a_i``), else None."""
        plain = self.expression.unnest()
        return self.aggregate_numbers[0] if isinstance(plain, exp.Column) and self.aggregate_numbers else None


def list_aggregate_numbers(expression: exp.Expr) -> tuple[int, ...]:
    """Return the numbers of the aggregate functions that an expression over the answer uses: 2 for ``a_2``."""
    names = (item.name for item in expression.find_all(exp.Column))
    return tuple(dict.fromkeys(int(name[2:]) for name in names if name.startswith("a_")))


@dataclass(frozen=True)
class Statement:
    """A SELECT taken apart into questions, one for each aggregate function, and expressions over their answers.

    Attributes:
        scope: The records and their groups.
        sets: The grouping sets, each as the numbers of its groups; one set of all groups without GROUPING SETS.
        calls: The aggregate functions; number i is called ``a_i`` in expressions.
        outputs: The columns of the answer.
        having: The condition of HAVING; None if there is none.
        order: The items of ORDER BY.
        limit: The number of rows to keep; None for all.
        offset: The number of rows to skip; None for none.
        windows: The window functions over groups and aggregate functions.
        qualify: The condition of QUALIFY; None if there is none.
        unique: Expressions of DISTINCT: of rows with equal values only the first is kept. None keeps all rows.
        previews: Whether the SELECT lists columns of some records and aggregates nothing.
    """

    scope: Scope
    sets: tuple[tuple[int, ...], ...]
    calls: tuple[AggregateCall, ...]
    outputs: tuple[Output, ...]
    having: exp.Expr | None = None
    order: tuple[exp.Ordered, ...] = ()
    limit: int | None = None
    offset: int | None = None
    windows: tuple[exp.Window, ...] = ()
    qualify: exp.Expr | None = None
    unique: tuple[exp.Expr, ...] | None = None
    previews: bool = False

    @property
    def questions(self) -> list[CountQuery]:
        """Return one question for each aggregate function, grouped by all groups."""
        return [one.as_question(self.scope) for one in self.calls]


class Lookups(Protocol):
    """The analyst's own tables, which queries may join to the release or read in subqueries."""

    def find_table(self, names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """Return the name of a table's copy in database ``lookups``, and the names of its columns.

        Args:
            names: The parts of the name that the query uses for the table.

        Raises:
            UsageError: There is no such table.
        """

    def read_rows(self, query: exp.Select) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT over these tables alone, at most 10,001."""

    def answer_query(self, query: exp.Select) -> tuple[list[tuple[Any, ...]], bool]:
        """Answer a SELECT over the release that stands in a subquery, so that its rows can replace it as constants.

        Returns:
            The rows, without standard errors and bounds, and whether every row is exact.
        """


# SQL of questions -----------------------------------------------------------------------------------------------------


def group_terms(query: CountQuery, side: Side) -> list[tuple[str, exp.Expr]]:
    """Return the GROUP BY expressions and terms over one kind of columns, each as (name, expression).

    Expression i of GROUP BY is named ``g_i``. Terms are pieces of conditions that name both quasi-identifiers and
    sensitive columns; each piece names one kind alone (``CountQuery.terms``).

    Args:
        query: The question.
        side: "qi" for quasi-identifiers, "sa" for sensitive columns.
    """
    groups = [(f"g_{i}", g.expression) for i, g in enumerate(query.groups) if g.side == side]
    return [*groups, *query.terms[side]]


def select_terms(query: CountQuery, side: Side) -> list[exp.Expr]:
    """Return the GROUP BY expressions and terms over one kind of columns as items of a SELECT list.

    Terms are pieces of conditions (``CountQuery.terms``). The aliases are the names by which the question calls these
    expressions.

    Args:
        query: The question.
        side: "qi" for quasi-identifiers, "sa" for sensitive columns.
    """
    return [alias_as(expression.copy(), name) for name, expression in group_terms(query, side)]


def side_holes(query: CountQuery) -> Holes:
    """Return the parts of a question that fill a file of ``sql/`` about quasi-identifiers and sensitive values.

    Keys are the names of the file's placeholders. ``qi_filter`` and ``sa_filter`` are the conditions on one kind of
    columns alone. ``qi_terms`` and ``sa_terms`` are the GROUP BY expressions, and pieces of all other conditions, under
    names. ``predicate`` joins the pieces by their names, and ``groups`` are the names of the GROUP BY expressions.
    """
    holes: Holes = {"predicate": query.predicate or exp.true()}
    holes["groups"] = [column(f"g_{i}") for i in range(len(query.groups))]
    for side, filters in query.filters.items():
        holes |= {f"{side}_terms": select_terms(query, side), f"{side}_filter": all_of(filters)}
    return holes


def condition_holes(query: CountQuery) -> Holes:
    """Return the parts of a question that fill a file of ``sql/`` which selects and groups by quasi-identifiers.

    Keys are the names of the file's placeholders. ``filter`` has the conditions on quasi-identifiers alone. ``keys``
    has the expressions to group by: those of GROUP BY, pieces of conditions that also name sensitive columns, and
    whether the amount of SUM or AVG is NULL. ``terms`` has the same expressions under names.
    """
    keys = [expression for _, expression in group_terms(query, "qi")]
    return {"terms": select_terms(query, "qi"), "keys": keys, "filter": all_of(query.filters["qi"])}


def observation_holes(query: CountQuery) -> Holes:
    """Return the parts of a question that fill a file of ``sql/`` which counts records by published value.

    Keys are the names of the file's placeholders: those of ``condition_holes`` (the condition, and the expressions to
    group by), and ``groups`` (the names of these expressions). ``totals`` and ``amounts`` have the sum for SUM or AVG;
    they are empty for a count.
    """
    groups, amount = [column(name) for name, _ in group_terms(query, "qi")], query.measure.amount
    totals = [alias_as(exp.Sum(this=amount), "amounts")] if amount else []
    return condition_holes(query) | {"groups": groups, "totals": totals, "amounts": [column("amounts")] * len(totals)}


def exact_statement(query: CountQuery, records: exp.Table, functions: Sequence[exp.Expr] = ()) -> exp.Query:
    """Return the SQL of an answer that the table ``records`` holds exactly.

    Args:
        query: The question.
        records: The published table with the quasi-identifiers.
        functions: The aggregate functions to compute; the one of the question if there are none.
    """
    condition = [*query.filters["qi"], *([query.predicate] if query.predicate is not None else [])]
    measures = [alias_as(one, f"a_{i}") for i, one in enumerate(functions or [query.measure.function])]
    holes: Holes = {"qit": query.join_lookups(records), "filter": all_of(condition), "measure": measures}
    return fill("query/exact", condition_holes(query) | holes)


def exact_answer(db: Relations, query: CountQuery, records: exp.Table) -> list[Estimate]:
    """Compute the rows of an answer that the table ``records`` holds exactly; their errors are 0."""
    rows = db.rows(exact_statement(query, records))
    return [exact_estimate(tuple(row[:-1]), None if row[-1] is None else as_number(row[-1])) for row in rows]
