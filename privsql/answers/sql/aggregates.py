"""Take the aggregate functions of a SELECT apart into the count questions behind them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import TypeGuard

from sqlglot import exp

from privsql.answers.sql.names import sides_of, split_condition
from privsql.answers.sql.question import (
    AGGREGATES,
    COMPARISONS,
    CONNECTIVES,
    STATISTICS,
    CountQuery,
    Group,
    Kind,
    Lookup,
    Measure,
    Side,
    as_written,
    check_kinds,
    unwrap_order,
)
from privsql.engine.sqlfiles import all_of, is_null
from privsql.errors import UsageError

# SELECTs taken apart --------------------------------------------------------------------------------------------------
# A SELECT as count questions, one for each aggregate function, and expressions over their answers.
#
# Groups are named g_0, g_1, .., aggregate functions a_0, a_1, .. and window functions a_1000, ..; outputs, HAVING and
# ORDER BY are expressions over these names.

WINDOWS = 1_000  # the number of the first window function


@dataclass(frozen=True)
class Scope:
    """The records that a SELECT is about and their groups; ``sides`` of all columns, by name."""

    groups: tuple[Group, ...] = ()
    where: exp.Expr | None = None
    lookups: tuple[Lookup, ...] = ()
    sides: Mapping[str, Side] = field(default_factory=dict)

    def make_question(self, measure: Measure | None = None, among: exp.Expr | None = None) -> CountQuery:
        """Return the question on records that also meet ``among``; by default on their number."""
        conditions = [part.copy() for part in (self.where, among) if part is not None]
        root = exp.and_(*conditions) if len(conditions) > 1 else conditions[0] if conditions else None
        query = CountQuery(self.groups, *split_condition(root, self.sides), measure or Measure(), self.lookups)
        return query if query.is_exact else query.separate_null_amounts()

    def select_groups(self, chosen: Sequence[int]) -> Scope:
        """Return the scope with some of its groups."""
        return replace(self, groups=tuple(self.groups[i] for i in chosen))


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate function, over the records that meet ``among`` too; ``written``: as the query has it."""

    measure: Measure
    among: exp.Expr | None
    written: str

    def as_question(self, scope: Scope) -> CountQuery:
        """Return the question that it puts."""
        return scope.make_question(self.measure, self.among)

    @property
    def function(self) -> exp.Expr:
        """Return the function as SQL."""
        if self.among is None:
            return self.measure.function
        return exp.Filter(this=self.measure.function, expression=exp.Where(this=self.among))


@dataclass(frozen=True)
class Output:
    """A column of the answer: its alias, empty for none, and its expression over groups and aggregates."""

    alias: str
    expression: exp.Expr
    written: str
    bound: str = ""  # low, high or std_error: that of the figure in place of the figure

    @cached_property
    def aggregate_numbers(self) -> tuple[int, ...]:
        """Numbers of the aggregate functions in it."""
        return list_aggregate_numbers(self.expression)

    @cached_property
    def single_aggregate(self) -> int | None:
        """Return the number of the aggregate function that it is, if it is one and nothing else."""
        plain = self.expression.unnest()
        return self.aggregate_numbers[0] if isinstance(plain, exp.Column) and self.aggregate_numbers else None


def list_aggregate_numbers(expression: exp.Expr) -> tuple[int, ...]:
    """Numbers of the aggregates that an expression over an answer is about."""
    names = (item.name for item in expression.find_all(exp.Column))
    return tuple(dict.fromkeys(int(name[2:]) for name in names if name.startswith("a_")))


@dataclass(frozen=True)
class Statement:
    """A SELECT taken apart. ``sets``: the groups of each grouping set, by their numbers; one set of all without any."""

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
        """Return the question of each aggregate function, by all groups."""
        return [one.as_question(self.scope) for one in self.calls]

    def require_splittable(self) -> Statement:
        """Return the condition itself; ``UsageError`` if it can't be split."""
        conditions = [self.scope.where, *(one.among for one in self.calls)]
        for part in dict.fromkeys(part for part in conditions if part is not None):
            split_condition(part.copy(), self.scope.sides)
        return self


# Aggregates -----------------------------------------------------------------------------------------------------------
# Aggregate functions of a query: the question of each, and its records.
#
# COUNT(x), COUNT_IF and FILTER are counts under one more condition. So are sums and means of CASE WHEN c THEN k ELSE 0
# END and of a condition as a number, since a release can answer counts where c is about sensitive columns.

KINDS: dict[type[exp.Expr], Kind] = {
    exp.Sum: "sum", exp.Avg: "avg", exp.Min: "min", exp.Max: "max", exp.Median: "median"
}  # fmt: skip
ONE = exp.Literal.number(1)
EXACT_ONLY = ("min", "max", "median", "distinct", "statistic")
NUMERIC = "TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER UBIGINT HUGEINT UHUGEINT FLOAT DOUBLE DECIMAL"
TRUTHS = (*COMPARISONS, *CONNECTIVES, exp.In, exp.Between, exp.Is, exp.Like, exp.ILike)


Named = Callable[[int], exp.Expr]


class Aggregates:
    """The aggregate functions of a query with its names resolved, each once.

    ``measures``: which of sum, avg, min and max of a sensitive column the release can tell; ``check``: refuses what may
    not stand in FILTER.
    """

    def __init__(
        self,
        sides: Mapping[str, Side],
        types: Mapping[str, str],
        measures: Collection[str],
        check: Callable[[str, exp.Expr], None] = check_kinds,
    ) -> None:
        self._sides, self._types, self._told, self._check = sides, types, measures, check
        self.asked: list[AggregateCall] = []
        self._seen: dict[tuple[str, exp.Expr | None, exp.Expr | None, Fraction], int] = {}

    def as_expression(self, node: exp.Expr, named: Named) -> exp.Expr:
        """Return an aggregate function, with its FILTER, over numbered ones that ``named`` makes columns."""
        among = None
        if isinstance(node, exp.Filter):
            among, node = node.expression.this, node.this
            self._check("FILTER", among)
        if isinstance(node, STATISTICS):
            return named(self._number_call(self._make_statistic(node), among, node))
        self._refuse_unsupported(node)
        branch = _match_branch(node)
        if branch is not None and "sa" in sides_of(branch[0], self._sides):
            return self._of_branch(node, branch, among, named)
        return self._plain_expression(node, among, named)

    def _plain_expression(self, node: exp.Expr, among: exp.Expr | None, named: Named) -> exp.Expr:

        def number_call(measure: Measure, *more: exp.Expr) -> exp.Expr:
            conditions = [part for part in (among, *more) if part is not None]
            return named(self._number_call(measure, all_of(conditions) if conditions else None, node))

        if isinstance(node, exp.CountIf):  # of NULL alone it is NULL, unlike COUNT
            return _of_weighed(node, (node.this, exp.Literal.number(1), False), number_call)
        if isinstance(node, exp.Count):
            return self._count_expression(node, number_call)
        if not any(node.this.find_all(exp.Column)):
            return _of_constant(node, number_call)
        weighed = _match_weighed(node.this) if isinstance(node, exp.Sum | exp.Avg) else None
        if weighed is not None and "sa" in sides_of(weighed[0], self._sides):
            return _of_weighed(node, weighed, number_call)
        return number_call(self._make_measure(KINDS[type(node)], node))

    def _of_branch(
        self, node: exp.Expr, branch: tuple[exp.Expr, exp.Expr, bool], among: exp.Expr | None, named: Named
    ) -> exp.Expr:
        """Return an aggregate function of CASE WHEN c THEN x [ELSE 0] END as one of x FILTER (WHERE c)."""
        condition, value, or_zero = branch
        met = exp.paren(condition.copy()) if among is None else exp.and_(among.copy(), condition.copy())

        def read(function: exp.Expr, where: exp.Expr | None) -> exp.Expr:
            filtered = exp.Filter(this=function, expression=exp.Where(this=where)) if where is not None else function
            return self.as_expression(filtered, named)

        inner = node.copy()
        holder = inner.this.expressions[0] if isinstance(inner.this, exp.Distinct) else inner.this
        holder.replace(value.copy())
        figure = read(inner, met)
        if not or_zero:
            return figure
        # of nobody it is NULL, and of records that do not meet the condition 0
        number = read(exp.Count(this=exp.Star(), big_int=True), among)
        nobody = exp.If(this=exp.EQ(this=number, expression=exp.Literal.number(0)), true=exp.null())
        return exp.Case(ifs=[nobody], default=exp.Coalesce(this=figure, expressions=[exp.Literal.number(0)]))

    def _refuse_unsupported(self, node: exp.Expr) -> None:
        if not isinstance(node, AGGREGATES) or any(
            value for key, value in node.args.items() if key not in ("this", "big_int")
        ):
            raise UsageError(
                f"{as_written(node)} is not supported; COUNT, SUM, AVG, MIN, MAX and MEDIAN of one column work"
            )
        if node.this is None:
            raise UsageError(f"{as_written(node)} is not supported; write COUNT(*)")
        if isinstance(node.this, exp.Distinct) and not isinstance(node, exp.Count):
            raise UsageError(f"{as_written(node)} is not supported; COUNT(DISTINCT ..) is")
        inner = node.this.expressions if isinstance(node.this, exp.Distinct) else [node.this]
        for item in inner:
            if not isinstance(item, exp.Star):
                check_kinds(as_written(node), item)

    def _make_statistic(self, node: exp.Expr) -> Measure:
        """Return a statistic of quasi-identifiers, which the release holds exactly or not at all."""
        if isinstance(node, exp.WithinGroup):  # as a function of two arguments, of which each engine has one
            (ordered,), share = node.expression.expressions, node.this.this
            if ordered.args.get("desc") and _is_number(share):
                share = exp.Literal.number(str(1 - Decimal(share.name)))
            node = type(node.this)(this=ordered.this, expression=share)
        for part in node.iter_expressions():
            check_kinds(as_written(node), part, aggregates=True)
        operand, share = node.this, node.args.get("expression")
        if isinstance(node, exp.PercentileCont) and sides_of(node, self._sides) == {"sa"} and _is_number(share):
            median = self._make_measure("median", exp.Median(this=operand))
            return replace(median, share=Fraction(share.name))
        if sides_of(node, self._sides) != {"qi"}:
            instead = "GROUP BY the column and COUNT(*)"
            raise UsageError(f"{as_written(node)} is only available for quasi-identifiers; {instead}")
        return Measure("statistic", node)

    def _number_call(self, measure: Measure, among: exp.Expr | None, node: exp.Expr) -> int:
        key = (measure.kind, measure.operand, among, measure.share)
        if key not in self._seen:
            self._seen[key] = len(self.asked)
            self.asked.append(AggregateCall(measure, among, as_written(node)))
        return self._seen[key]

    def _count_expression(self, node: exp.Count, register: Callable[..., exp.Expr]) -> exp.Expr:
        counted = node.this
        if isinstance(counted, exp.Distinct):
            if len(counted.expressions) != 1 or counted.args.get("on"):
                raise UsageError(f"{as_written(node)} is not supported; count the different values of one column")
            return register(self._make_measure("distinct", node, counted.expressions[0]))
        if isinstance(counted, exp.Star | exp.Literal | exp.Boolean | exp.Null):
            number = register(Measure())
            return exp.Mul(this=number, expression=exp.Literal.number(0)) if isinstance(counted, exp.Null) else number
        return register(Measure(), exp.not_(is_null(exp.paren(counted))))

    def _make_measure(self, kind: Kind, node: exp.Expr, argument: exp.Expr | None = None) -> Measure:
        """SUM, AVG and the like of a column or expression of one side."""
        written, operand = as_written(node), (argument or node.this).unnest()
        sides = sides_of(operand, self._sides)
        if len(sides) == 2:
            raise UsageError(f"{written}: quasi-identifiers and sensitive columns together are not supported")
        known = self._types.get(operand.name, "DOUBLE") if isinstance(unwrap_order(operand), exp.Column) else "DOUBLE"
        if sides == {"sa"}:
            if not isinstance(operand, exp.Column) or kind not in self._told:
                raise UsageError(f"{written}: {_suggest_instead(kind)}")
            if not is_number(known):
                raise UsageError(
                    f"{written}: {operand.name} is {known}, not a number; count the records of a range of it"
                )
            return Measure(kind, operand, "sa")
        if kind in ("sum", "avg") and not is_number(known):
            raise UsageError(f"{written}: {operand.name} is {known}, not a number")
        return Measure(kind, operand)


def is_number(kind: str) -> bool:
    """Return whether values of a type can be added up."""
    return kind.split("(", maxsplit=1)[0] in (*NUMERIC.split(), "BOOLEAN")


def _suggest_instead(kind: str) -> str:
    if kind in ("sum", "avg"):
        return "SUM and AVG are for quasi-identifiers and published measures only; count the records of its values"
    return "MIN, MAX, MEDIAN and the like need a quasi-identifier; GROUP BY the sensitive column and COUNT(*)"


def _match_branch(node: exp.Expr) -> tuple[exp.Expr, exp.Expr, bool] | None:
    """Return c, x, and whether ELSE is 0, of a function of CASE WHEN c THEN x [ELSE 0] END; None for any other.

    A sum with ELSE 0 of a constant x is left to ``_match_weighed``.
    """
    inner = node.this
    if isinstance(inner, exp.Distinct):
        inner = inner.expressions[0] if len(inner.expressions) == 1 else None
    case = inner.unnest() if isinstance(inner, exp.Expr) else None
    if not isinstance(case, exp.Case) or case.this is not None or len(case.args["ifs"]) != 1:
        return None
    branch, default = case.args["ifs"][0], case.args.get("default")
    value = branch.args["true"]
    if default is None or isinstance(default, exp.Null):
        return branch.this, value, False
    is_zero = _is_number(default) and not float(default.name)
    return (branch.this, value, True) if is_zero and isinstance(node, exp.Sum) and not _is_number(value) else None


Weighed = tuple[exp.Expr, exp.Expr, bool]


def _match_weighed(root: exp.Expr) -> Weighed | None:
    """Return a condition, the number that it counts, and whether NULL counts as 0; None for another expression."""
    root = root.unnest()
    if isinstance(root, exp.Cast) and isinstance(root.this.unnest(), TRUTHS):
        return root.this, exp.Literal.number(1), False
    if isinstance(root, exp.If):
        root = exp.Case(ifs=[exp.If(this=root.this, true=root.args["true"])], default=root.args.get("false"))
    if not isinstance(root, exp.Case) or root.this is not None or len(root.args["ifs"]) != 1:
        return None
    branch, default = root.args["ifs"][0], root.args.get("default")
    if not _is_number(branch.args["true"]) or default is None or not _is_number(default) or float(default.name):
        return None
    return branch.this, branch.args["true"], True


def _is_number(item: exp.Expr | None) -> TypeGuard[exp.Literal]:
    return isinstance(item, exp.Literal) and not item.is_string


def _of_weighed(node: exp.Expr, weighed: Weighed, register: Callable[..., exp.Expr]) -> exp.Expr:
    """Return SUM or AVG of k where a condition holds, else 0, by counts; NULL where there is nobody."""
    condition, weight, every_record = weighed
    # IS NOT NULL, in connectives: both sides of a release may be in it
    known = [] if every_record else [exp.or_(condition, exp.not_(condition))]
    met, all_of_them = register(Measure(), condition), register(Measure(), *known)
    if float(weight.name) != 1:
        met = exp.Mul(this=met, expression=weight.copy())
    zero = exp.Literal.number(0)
    if isinstance(node, exp.Avg):
        everyone = exp.Nullif(this=all_of_them, expression=zero)
        return exp.paren(exp.Div(this=met, expression=everyone, typed=False, safe=False))
    none = exp.If(this=exp.EQ(this=all_of_them, expression=zero), true=exp.null())
    return exp.Case(ifs=[none], default=met)


def _of_constant(node: exp.Expr, register: Callable[..., exp.Expr]) -> exp.Expr:
    """SUM, AVG, MIN, MAX or MEDIAN of a constant by the number of records; NULL where there is nobody."""
    number = register(Measure())
    value: exp.Expr = exp.paren(node.this.copy())
    if isinstance(node, exp.Sum):
        value = number if node.this == ONE else exp.Mul(this=number, expression=value)
    elif isinstance(node, exp.Avg | exp.Median):
        value = exp.cast(value, "DOUBLE")
    none = exp.If(this=exp.EQ(this=number.copy(), expression=exp.Literal.number(0)), true=exp.null())
    return exp.Case(ifs=[none], default=value)
