"""Take the aggregate functions of a SELECT apart into the count questions behind them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers.names import sides_of, split
from privsql.answers.question import (
    AGGREGATES,
    COMPARISONS,
    CONNECTIVES,
    CountQuery,
    Group,
    Lookup,
    Measure,
    check_kinds,
    plain,
    text,
)
from privsql.engine.sqlfiles import every, is_null
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from privsql.answers.question import Kind, Side

# SELECTs taken apart --------------------------------------------------------------------------------------------------
# A SELECT taken apart: the questions behind its aggregate functions, and what is made of their answers.
#
# Inside, the groups are called g_0, g_1, .. and what the aggregate functions give a_0, a_1, ..; outputs, HAVING and
# ORDER BY are expressions over these.


@dataclass(frozen=True)
class Scope:
    """The records that a SELECT is about and their groups; ``sides`` of all columns, by name."""

    groups: tuple[Group, ...] = ()
    where: exp.Expr | None = None
    lookups: tuple[Lookup, ...] = ()
    sides: Mapping[str, Side] = field(default_factory=dict)

    def question(self, measure: Measure | None = None, among: exp.Expr | None = None) -> CountQuery:
        """What is asked of the records that also meet the condition ``among``; by default their number."""
        conditions = [part.copy() for part in (self.where, among) if part is not None]
        root = exp.and_(*conditions) if len(conditions) > 1 else conditions[0] if conditions else None
        asked = CountQuery(self.groups, *split(root, self.sides), measure or Measure(), self.lookups)
        return asked if asked.is_exact else asked.told_apart()

    def by(self, chosen: Sequence[int]) -> Scope:
        """The same records by some of the groups."""
        return replace(self, groups=tuple(self.groups[i] for i in chosen))


@dataclass(frozen=True)
class Asked:
    """An aggregate function, over the records that meet ``among`` too; ``written``: as the query has it."""

    measure: Measure
    among: exp.Expr | None
    written: str

    def of(self, scope: Scope) -> CountQuery:
        """The question that it puts."""
        return scope.question(self.measure, self.among)

    @property
    def function(self) -> exp.Expr:
        """As SQL has it."""
        if self.among is None:
            return self.measure.function
        return exp.Filter(this=self.measure.function, expression=exp.Where(this=self.among))


@dataclass(frozen=True)
class Output:
    """A column of the answer: its alias, empty for none, and its expression over groups and aggregates."""

    alias: str
    expression: exp.Expr
    written: str

    @cached_property
    def aggregates(self) -> tuple[int, ...]:
        """Numbers of the aggregate functions in it."""
        return used(self.expression)

    @cached_property
    def single(self) -> int | None:
        """The number of the aggregate function that it is, if it is one and nothing else."""
        plain = self.expression.unnest()
        return self.aggregates[0] if isinstance(plain, exp.Column) and self.aggregates else None


def used(expression: exp.Expr) -> tuple[int, ...]:
    """Numbers of the aggregates that an expression over an answer is about."""
    names = (item.name for item in expression.find_all(exp.Column))
    return tuple(dict.fromkeys(int(name[2:]) for name in names if name.startswith("a_")))


@dataclass(frozen=True)
class Statement:
    """A SELECT taken apart. ``sets``: the groups of each grouping set, by their numbers; one set of all without any."""

    scope: Scope
    sets: tuple[tuple[int, ...], ...]
    asked: tuple[Asked, ...]
    outputs: tuple[Output, ...]
    having: exp.Expr | None = None
    order: tuple[exp.Ordered, ...] = ()
    limit: int | None = None
    offset: int | None = None

    @property
    def questions(self) -> list[CountQuery]:
        """What each aggregate function asks, by all groups."""
        return [one.of(self.scope) for one in self.asked]

    def checked(self) -> Statement:
        """Itself; ``UsageError`` for a condition that can't be split."""
        conditions = [self.scope.where, *(one.among for one in self.asked)]
        for part in dict.fromkeys(part for part in conditions if part is not None):
            split(part.copy(), self.scope.sides)
        return self


# Aggregates -----------------------------------------------------------------------------------------------------------
# Aggregate functions of a query: what each asks, and over which records.
#
# COUNT(x), COUNT_IF and FILTER are counts under one more condition. Sums and means of CASE WHEN c THEN k ELSE 0 END,
# and of a condition as a number, are counts as well: where c is about sensitive columns, a count is what can be
# answered.

KINDS: dict[type[exp.Expr], Kind] = {
    exp.Sum: "sum", exp.Avg: "avg", exp.Min: "min", exp.Max: "max", exp.Median: "median"
}  # fmt: skip
ONE = exp.Literal.number(1)
EXACT_ONLY = ("min", "max", "median", "distinct")
NUMERIC = "TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER UBIGINT HUGEINT UHUGEINT FLOAT DOUBLE DECIMAL"
TRUTHS = (*COMPARISONS, *CONNECTIVES, exp.In, exp.Between, exp.Is, exp.Like, exp.ILike)


class Aggregates:
    """The aggregate functions of a query with its names resolved, each once.

    ``told``: which of sum, avg, min and max of a sensitive column the release can tell.
    """

    def __init__(self, sides: Mapping[str, Side], types: Mapping[str, str], told: Collection[str]) -> None:
        self._sides, self._types, self._told = sides, types, told
        self.asked: list[Asked] = []
        self._seen: dict[tuple[str, exp.Expr | None, exp.Expr | None], int] = {}

    def expression(self, node: exp.Expr, named: Callable[[int], exp.Expr]) -> exp.Expr:
        """An aggregate function, with its FILTER, over numbered ones that ``named`` makes columns."""
        among = None
        if isinstance(node, exp.Filter):
            among, node = node.expression.this, node.this
            check_kinds("FILTER", among)
        self._plain(node)

        def asked(measure: Measure, *more: exp.Expr) -> exp.Expr:
            conditions = [part for part in (among, *more) if part is not None]
            return named(self._number(measure, every(conditions) if conditions else None, node))

        if isinstance(node, exp.CountIf):  # of NULL alone it is NULL, unlike COUNT
            return _of_weighed(node, (node.this, exp.Literal.number(1), False), asked)
        if isinstance(node, exp.Count):
            return self._count(node, asked)
        if not any(node.this.find_all(exp.Column)):
            return _of_constant(node, asked)
        weighed = _weighed(node.this) if isinstance(node, exp.Sum | exp.Avg) else None
        if weighed is not None and "sa" in sides_of(weighed[0], self._sides):
            return _of_weighed(node, weighed, asked)
        return asked(self._measure(KINDS[type(node)], node))

    def _plain(self, node: exp.Expr) -> None:
        if not isinstance(node, AGGREGATES) or any(
            value for key, value in node.args.items() if key not in ("this", "big_int")
        ):
            raise UsageError(f"{text(node)} is not supported; COUNT, SUM, AVG, MIN, MAX and MEDIAN of one column work")
        if node.this is None:
            raise UsageError(f"{text(node)} is not supported; write COUNT(*)")
        if isinstance(node.this, exp.Distinct) and not isinstance(node, exp.Count):
            raise UsageError(f"{text(node)} is not supported; COUNT(DISTINCT ..) is")
        inner = node.this.expressions if isinstance(node.this, exp.Distinct) else [node.this]
        for item in inner:
            if not isinstance(item, exp.Star):
                check_kinds(text(node), item)

    def _number(self, measure: Measure, among: exp.Expr | None, node: exp.Expr) -> int:
        key = (measure.kind, measure.of, among)
        if key not in self._seen:
            self._seen[key] = len(self.asked)
            self.asked.append(Asked(measure, among, text(node)))
        return self._seen[key]

    def _count(self, node: exp.Count, asked: Callable[..., exp.Expr]) -> exp.Expr:
        counted = node.this
        if isinstance(counted, exp.Distinct):
            if len(counted.expressions) != 1 or counted.args.get("on"):
                raise UsageError(f"{text(node)} is not supported; count the different values of one column")
            return asked(self._measure("distinct", node, counted.expressions[0]))
        if isinstance(counted, exp.Star | exp.Literal | exp.Boolean | exp.Null):
            number = asked(Measure())
            return exp.Mul(this=number, expression=exp.Literal.number(0)) if isinstance(counted, exp.Null) else number
        return asked(Measure(), exp.not_(is_null(exp.paren(counted))))

    def _measure(self, kind: Kind, node: exp.Expr, of: exp.Expr | None = None) -> Measure:
        """SUM, AVG and the like of a column or expression of one side."""
        written, own = text(node), (of or node.this).unnest()
        sides = sides_of(own, self._sides)
        if len(sides) == 2:
            raise UsageError(f"{written}: quasi-identifiers and sensitive columns together are not supported")
        known = self._types.get(own.name, "DOUBLE") if isinstance(plain(own), exp.Column) else "DOUBLE"
        if sides == {"sa"}:
            if not isinstance(own, exp.Column) or kind not in self._told:
                raise UsageError(f"{written}: {_instead(kind)}")
            if not is_number(known):
                raise UsageError(f"{written}: {own.name} is {known}, not a number; count the records of a range of it")
            return Measure(kind, own, "sa")
        if kind in ("sum", "avg") and not is_number(known):
            raise UsageError(f"{written}: {own.name} is {known}, not a number")
        return Measure(kind, own)


def is_number(kind: str) -> bool:
    """Whether values of a type can be added up."""
    return kind.split("(", maxsplit=1)[0] in (*NUMERIC.split(), "BOOLEAN")


def _instead(kind: str) -> str:
    if kind in ("sum", "avg"):
        return "only quasi-identifiers of the release can be added up; count the records of its values"
    return "only of quasi-identifiers it can be told; GROUP BY the sensitive column and COUNT(*)"


Weighed = tuple[exp.Expr, exp.Expr, bool]


def _weighed(root: exp.Expr) -> Weighed | None:
    """A condition, the number that it counts, and whether NULL counts as 0; None for another expression."""
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


def _is_number(item: exp.Expr) -> bool:
    return isinstance(item, exp.Literal) and not item.is_string


def _of_weighed(node: exp.Expr, weighed: Weighed, asked: Callable[..., exp.Expr]) -> exp.Expr:
    """SUM or AVG of it by counts: k times those that meet the condition, of all; NULL where there is nobody."""
    condition, weight, every_record = weighed
    # IS NOT NULL, in connectives: both sides of a release may be in it
    known = [] if every_record else [exp.or_(condition, exp.not_(condition))]
    met, all_of_them = asked(Measure(), condition), asked(Measure(), *known)
    if not _is_one(weight):
        met = exp.Mul(this=met, expression=weight.copy())
    zero = exp.Literal.number(0)
    if isinstance(node, exp.Avg):
        return exp.paren(
            exp.Div(this=met, expression=exp.Nullif(this=all_of_them, expression=zero), typed=False, safe=False)
        )
    none = exp.If(this=exp.EQ(this=all_of_them, expression=zero), true=exp.null())
    return exp.Case(ifs=[none], default=met)


def _of_constant(node: exp.Expr, asked: Callable[..., exp.Expr]) -> exp.Expr:
    """SUM, AVG, MIN, MAX or MEDIAN of a constant by the number of records; NULL where there is nobody."""
    number = asked(Measure())
    value: exp.Expr = exp.paren(node.this.copy())
    if isinstance(node, exp.Sum):
        value = number if node.this == ONE else exp.Mul(this=number, expression=value)
    elif isinstance(node, exp.Avg | exp.Median):
        value = exp.cast(value, "DOUBLE")
    none = exp.If(this=exp.EQ(this=number.copy(), expression=exp.Literal.number(0)), true=exp.null())
    return exp.Case(ifs=[none], default=value)


def _is_one(weight: exp.Expr) -> bool:
    return float(weight.name) == 1
