"""The parts of a count query: conditions by side of the release, groups, aggregates, permitted functions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from sqlglot import exp

from privsql.engine.sqlfiles import DIALECT, Holes, alias_as, all_of, column, fill, table
from privsql.errors import UsageError
from privsql.model.manifest import Estimate, as_number, exact_estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from privsql.engine.database import Relations

# Functions ------------------------------------------------------------------------------------------------------------
# The functions that an analyst's expressions may use: pure functions of one row with cost linear in their arguments.
#
# None of them reads a file, a setting, the time or a random number. None makes a text longer than its arguments and the
# query (no ``repeat``, ``replace``, ``lpad``, ``format``). Regular expressions are RE2's.

COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
CONNECTIVES = (exp.And, exp.Or, exp.Not, exp.Paren)
STATISTICS = (
    exp.Quantile, exp.PercentileCont, exp.PercentileDisc, exp.WithinGroup, exp.Stddev, exp.StddevPop, exp.StddevSamp,
    exp.Variance, exp.VariancePop, exp.Corr, exp.CovarPop, exp.CovarSamp, exp.Mode,
)  # fmt: skip
AGGREGATES = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Median, exp.CountIf, *STATISTICS)

_PLAIN = (
    *CONNECTIVES, *COMPARISONS, exp.In, exp.Between, exp.Is, exp.Like, exp.ILike, exp.Escape, exp.Column,
    exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam,
    exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least, exp.Var, exp.Interval,
)  # fmt: skip
_NUMBERS = (
    exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Pow, exp.Abs, exp.Ceil, exp.Floor, exp.Round,
    exp.Trunc, exp.Sign, exp.Sqrt, exp.Ln, exp.Exp, exp.IsNan,
)  # fmt: skip
_TEXTS = (
    exp.Upper, exp.Lower, exp.Length, exp.Trim, exp.Substring, exp.Left, exp.Right, exp.StartsWith, exp.EndsWith,
    exp.Contains, exp.StrPosition, exp.SplitPart, exp.Concat, exp.DPipe, exp.RegexpLike, exp.RegexpFullMatch,
    exp.RegexpExtract, exp.SimilarTo, exp.Glob,
)  # fmt: skip
_TIMES = (
    exp.Year, exp.Quarter, exp.Month, exp.Week, exp.WeekOfYear, exp.Day, exp.DayOfWeek, exp.DayOfWeekIso,
    exp.DayOfYear, exp.Hour, exp.Minute, exp.Second, exp.TimestampTrunc, exp.DateTrunc, exp.Extract, exp.DateDiff,
    exp.DateAdd, exp.TimeToStr, exp.Monthname, exp.Dayname, exp.LastDay,
)  # fmt: skip
SCALAR = frozenset((*_PLAIN, *_NUMBERS, *_TEXTS, *_TIMES))
NAMED = frozenset((
    "date_part", "datepart", "isfinite", "isinf", "weekday", "strip_accents", "prefix", "suffix", "even", "decade",
    "century",
))  # fmt: skip
MONOTONE = (exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue)
RANKS = (exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile, exp.Count)
WINDOWED = (*MONOTONE, *RANKS)  # functions that may stand before OVER; the first grow with their argument
BOUNDS = ("low", "high", "std_error")  # functions of a figure
PERMITTED = frozenset((
    *SCALAR, *AGGREGATES, *WINDOWED, exp.Star, exp.Distinct, exp.Filter, exp.Where, exp.Order, exp.Ordered, exp.Window,
    exp.WindowSpec, exp.Grouping, exp.GroupingId,
))  # fmt: skip
TYPES = frozenset(getattr(exp.DataType.Type, name) for name in (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "INT128", "UTINYINT", "USMALLINT", "UINT", "UBIGINT", "FLOAT",
    "DOUBLE", "DECIMAL", "TEXT", "VARCHAR", "DATE", "TIME", "TIMESTAMP", "TIMESTAMPNTZ",
))  # fmt: skip
EXAMPLES = "comparisons, arithmetic, CASE, coalesce, upper, regexp_matches, year, date_trunc and the like work"


def check_kinds(clause: str, root: exp.Expr, *, aggregates: bool = False) -> None:
    """Raise ``UsageError`` for what may not stand in an expression of ``clause``."""
    known = PERMITTED if aggregates else SCALAR
    for node in root.walk():
        if isinstance(node, AGGREGATES) and not aggregates:
            raise UsageError(f"{clause}: {shorten_sql(node)} is not supported; use HAVING")
        if type(node) is exp.Anonymous and node.name.lower() in NAMED and isinstance(node.this, str):
            continue
        if aggregates and type(node) is exp.Anonymous and node.name.lower() in BOUNDS and len(node.expressions) == 1:
            continue
        if type(node) not in known:
            raise UsageError(f"{clause}: {shorten_sql(node, type(node).__name__)} is not supported; {EXAMPLES}")
        _check_details(clause, node)


def _check_details(clause: str, node: exp.Expr) -> None:
    if isinstance(node, exp.Cast | exp.TryCast):
        more = any(value for key, value in node.args.items() if key not in ("this", "to", "safe"))
        plain = node.to.this in TYPES and not node.to.args.get("nested") and not more
        if not plain and not node.meta.get(ORDERED) and any(node.find_all(exp.Column)):
            raise UsageError(f"{clause}: {shorten_sql(node)}: columns can be cast to numbers, texts and points in time")
    elif isinstance(node, exp.Star) and (any(node.args.values()) or not isinstance(node.parent, exp.Count)):
        raise UsageError(f"{clause}: {shorten_sql(node)} is not supported")


WRITTEN = "written"
ORDERED = "ordered"  # marks a cast that no analyst wrote: of a column to its own type (``answers.orders``)


def keep_text(item: exp.Expr) -> None:
    """Let ``as_written`` give an expression as it is written now, whatever its names become."""
    item.meta[WRITTEN] = item.sql(dialect=DIALECT)


def forget_positions(root: exp.Expr) -> None:
    """Drop from a tree all but what ``as_written`` needs: the rest is most of what a copy costs."""
    for node in root.walk():
        remaining = {key: node.meta[key] for key in (WRITTEN, ORDERED) if node.meta.get(key)}
        node._meta = remaining or None


def as_written(item: exp.Expr) -> str:
    """Return an expression as SQL, as it was written."""
    return str(item.meta.get(WRITTEN) or item.sql(dialect=DIALECT))


def list_items(clause: exp.Expr | Sequence[exp.Expr] | None) -> list[exp.Expr]:
    """Return the expressions of a clause: several, one or none."""
    return [] if clause is None else [clause] if isinstance(clause, exp.Expr) else list(clause)


def shorten_sql(item: exp.Expr, else_: str | None = None) -> str:
    """Return an expression as SQL; where that is long, its beginning, or ``else_``."""
    written = as_written(item)
    return written if len(written) < 60 else else_ or f"{written[:57]}..."


# Orders ---------------------------------------------------------------------------------------------------------------
# Columns whose type has its own order (ENUM): the release publishes text and states the order.
#
# They are sorted, grouped and compared with each other in that order, as in the source. Constants are compared as text,
# also as in the source.

ENUM = exp.DataType.Type.ENUM
PREDICATES = (*COMPARISONS, exp.Between, exp.In, exp.Is, exp.Like, exp.ILike)


def in_order(tree: exp.Select, orders: Mapping[str, Sequence[str]]) -> exp.Select:
    """Return the query with columns that have an order as values of such a type, wherever that matters."""
    for item in list(tree.find_all(exp.Column)) if orders else ():
        if item.name in orders and not _as_text(item):
            labels = [exp.Literal.string(one) for one in orders[item.name]]
            ordered = exp.cast(item.copy(), exp.DataType(this=ENUM, expressions=labels))
            ordered.meta.update({ORDERED: True, WRITTEN: as_written(item)})
            item.replace(ordered)
    return tree


def unwrap_order(expression: exp.Expr | None) -> exp.Expr | None:
    """Return the column behind its order; any other expression as it is."""
    ordered = isinstance(expression, exp.Cast) and expression.to.this == ENUM
    return expression.this if ordered and isinstance(expression, exp.Cast) else expression


def _as_text(item: exp.Column) -> bool:
    """Return whether a condition compares a record's own value with constants, which is done as text."""
    node = item.find_ancestor(*PREDICATES)
    if node is None or item.find_ancestor(exp.Where) is None:
        return False
    return all(other.name == item.name for other in node.find_all(exp.Column))


# Question -------------------------------------------------------------------------------------------------------------

Side = Literal["qi", "sa"]
Explained = tuple["exp.Query | Callable[[], exp.Query]", str]  # a statement, or what makes it, and the formula in words
Kind = Literal["count", "sum", "avg", "min", "max", "median", "distinct", "statistic", "window"]
COUNTS = ("count", "distinct")  # are 0 of nothing
AGGREGATE_NODES: dict[str, type[exp.AggFunc]] = {
    "sum": exp.Sum, "avg": exp.Avg, "min": exp.Min, "max": exp.Max, "median": exp.Median
}  # fmt: skip
EXACT = "the release holds the exact answer"
LOOKUPS = "lookups"  # the database of an analyst's own tables


@dataclass(frozen=True)
class Group:
    """One key of GROUP BY: an expression over columns of one side, and its type as the engine names it."""

    side: Side
    term: exp.Expr
    type: str = "VARCHAR"

    @property
    def column(self) -> str:
        """Return the name of the column that it is; empty for any other expression."""
        inner = unwrap_order(self.term)
        return inner.name if isinstance(inner, exp.Column) else ""

    @property
    def expression(self) -> exp.Expr:
        """Return the expression, as text where ``as_text`` says so."""
        return exp.cast(self.term, "VARCHAR") if as_text(self.type) else self.term


def as_text(kind: str) -> bool:
    """Return whether values of a type travel as text: Python knows neither infinity nor all years of SQL."""
    return kind.startswith(("DATE", "TIME", "INTERVAL", "UUID"))


@dataclass(frozen=True)
class Measure:
    """The aggregate of a question: ``count``, or ``sum`` or ``avg`` of ``operand`` over quasi-identifiers.

    Where the release can tell: ``sum``, ``avg``, ``min``, ``max`` or ``median`` of the sensitive column. Where no
    sensitive column is in the question: ``min``, ``max``, ``median``, ``distinct`` (the number of different values) and
    ``statistic``, whose ``operand`` is the aggregate function itself. ``window``: made of the answers of others.
    """

    kind: Kind = "count"
    operand: exp.Expr | None = None
    side: Side = "qi"
    share: Fraction = Fraction(1, 2)  # of a median of the sensitive column that is another quantile

    @property
    def column(self) -> str | None:
        """Return the name of the column that is measured, if it is one."""
        operand = unwrap_order(self.operand)
        return operand.name if isinstance(operand, exp.Column) else None

    @property
    def amount(self) -> exp.Expr | None:
        """Return the expression over quasi-identifiers to add up; None for a count."""
        return self.operand if self.side == "qi" else None

    @property
    def function(self) -> exp.Expr:
        """Return the aggregate function of SQL."""
        if self.kind == "count":
            return exp.Count(this=exp.Star())
        if self.kind == "distinct":
            return exp.Count(this=exp.Distinct(expressions=[self.operand]))
        if self.kind == "statistic" and self.operand is not None:
            return self.operand
        return AGGREGATE_NODES[self.kind](this=self.operand)

    @property
    def empty_figures(self) -> tuple[float | None, float | None, float | None, float | None]:
        """Estimate, std_error, low and high where no record can match: 0 for a count, NULL else, as in SQL."""
        return (0.0, 0.0, 0.0, 0.0) if self.kind in COUNTS else (None, None, None, None)


@dataclass(frozen=True)
class Lookup:
    """A table of the analyst's own, joined to the release on quasi-identifiers: (its column, the release's column).

    ``table``: where its copy lies in database ``lookups``; ``names``: how the query calls it; ``kept``: whether records
    that it has no row for stay (LEFT JOIN).
    """

    table: str
    names: tuple[str, ...]
    alias: str
    keys: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    keeps_unmatched: bool = False

    def inner_name(self, name: str) -> str:
        """Return the name of a column of the lookup beside those of the release."""
        return f"{self.alias}.{name}"


@dataclass(frozen=True)
class CountQuery:
    """A count query taken apart.

    ``filters``: conjuncts on one side alone; ``terms``: the one-sided parts of the rest, as (name, expression);
    ``predicate``: the rest over the terms' names, None if there is none; ``beside``: columns that it does not ask of
    but is to be seen by, so that its error compares with that of a question that does (``Answers.seen_by``).
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
        """Return whether no sensitive column is involved, so that the release holds the true answer."""
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
        """QIT, with the columns of the lookups beside its own."""
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


def group_terms(query: CountQuery, side: Side) -> list[tuple[str, exp.Expr]]:
    """Grouping columns and terms of one side, as (name, expression); groups are named g_0.. in the query's order."""
    groups = [(f"g_{i}", g.expression) for i, g in enumerate(query.groups) if g.side == side]
    return [*groups, *query.terms[side]]


def select_terms(query: CountQuery, side: Side) -> list[exp.Expr]:
    """Return ``group_terms`` as items of a SELECT list."""
    return [alias_as(expression.copy(), name) for name, expression in group_terms(query, side)]


def side_holes(query: CountQuery) -> Holes:
    """Return what holes of SQL have of both sides: their terms and filters, what is asked of both, and the groups."""
    holes: Holes = {"predicate": query.predicate or exp.true()}
    holes["groups"] = [column(f"g_{i}") for i in range(len(query.groups))]
    for side, filters in query.filters.items():
        holes |= {f"{side}_terms": select_terms(query, side), f"{side}_filter": all_of(filters)}
    return holes


def condition_holes(query: CountQuery) -> Holes:
    """Return what holes of SQL have of the records that meet a condition on quasi-identifiers, by group and term."""
    keys = [expression for _, expression in group_terms(query, "qi")]
    return {"terms": select_terms(query, "qi"), "keys": keys, "filter": all_of(query.filters["qi"])}


def observation_holes(query: CountQuery) -> Holes:
    """Return what they have of these records, counted by where a release lists their values, and of their amounts."""
    groups, amount = [column(name) for name, _ in group_terms(query, "qi")], query.measure.amount
    totals = [alias_as(exp.Sum(this=amount), "amounts")] if amount else []
    return condition_holes(query) | {"groups": groups, "totals": totals, "amounts": [column("amounts")] * len(totals)}


def exact_statement(query: CountQuery, records: exp.Table, functions: Sequence[exp.Expr] = ()) -> exp.Query:
    """Return the SQL of an answer that table ``records`` holds exactly; ``functions``: in place of its own."""
    condition = [*query.filters["qi"], *([query.predicate] if query.predicate is not None else [])]
    measures = [alias_as(one, f"a_{i}") for i, one in enumerate(functions or [query.measure.function])]
    holes: Holes = {"qit": query.join_lookups(records), "filter": all_of(condition), "measure": measures}
    return fill("query/exact", condition_holes(query) | holes)


def exact_answer(db: Relations, query: CountQuery, records: exp.Table) -> list[Estimate]:
    """Return the rows of an exact answer."""
    rows = db.rows(exact_statement(query, records))
    return [exact_estimate(tuple(row[:-1]), None if row[-1] is None else as_number(row[-1])) for row in rows]
