"""Define the SQL that is understood: the permitted functions and clauses, and how a text becomes a tree."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeGuard

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql.engine.sqlfiles import DIALECT
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

# Functions ------------------------------------------------------------------------------------------------------------
# The functions that an analyst's expressions may use: pure functions of one row with cost linear in their arguments.
#
# None of them reads a file, a setting, the time or a random number; CURRENT_DATE is a constant of the query. None makes
# a text much longer than its arguments and the query (no ``repeat``, ``format``), so ``replace`` and ``lpad`` take
# short constants and do not stand inside each other. Regular expressions are RE2's.

EQUALITY = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)
COMPARISONS = (*EQUALITY, exp.GT, exp.GTE, exp.LT, exp.LTE)
CONNECTIVES = (exp.And, exp.Or, exp.Not, exp.Paren)
STATISTICS = (
    exp.Quantile, exp.PercentileCont, exp.PercentileDisc, exp.WithinGroup, exp.Stddev, exp.StddevPop, exp.StddevSamp,
    exp.Variance, exp.VariancePop, exp.Corr, exp.CovarPop, exp.CovarSamp, exp.Mode,
)  # fmt: skip
CONSTANTS = (exp.AnyValue, exp.First)  # exact if all records of a group have the same value
AGGREGATES = (*CONSTANTS, exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Median, exp.CountIf, *STATISTICS)

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
    exp.RegexpExtract, exp.SimilarTo, exp.Glob, exp.Replace, exp.Pad,
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
WINDOWED = (*MONOTONE, *RANKS)  # may stand before OVER; MONOTONE ones never fall as their argument grows
BOUNDS = ("low", "high", "std_error")  # privsql's functions that return one part of a figure
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
    """Refuse an expression that contains functions or operators that its clause does not permit.

    Args:
        clause: The name of the clause, for messages.
        root: The expression.
        aggregates: Whether aggregate functions are permitted.

    Raises:
        UsageError: The expression contains something else.
    """
    for node in root.walk():
        name = node.name.lower() if type(node) is exp.Anonymous else ""
        is_known = type(node) in (PERMITTED if aggregates else SCALAR)
        is_known = is_known or (name in NAMED and isinstance(node.this, str))
        is_known = is_known or (aggregates and name in BOUNDS and len(node.expressions) == 1)
        if isinstance(node, AGGREGATES) and not aggregates:
            raise UsageError(f"{clause}: {shorten_sql(node)} is not supported; use HAVING")
        if not is_known:
            raise UsageError(f"{clause}: {shorten_sql(node, type(node).__name__)} is not supported; {EXAMPLES}")
        if isinstance(node, exp.Cast | exp.TryCast):
            more = any(value for key, value in node.args.items() if key not in ("this", "to", "safe"))
            plain = node.to.this in TYPES and not node.to.args.get("nested") and not more
            if not plain and not node.meta.get(ORDERED) and any(node.find_all(exp.Column)):
                works = "columns can be cast to numbers, texts and points in time"
                raise UsageError(f"{clause}: {shorten_sql(node)}: {works}")
        elif isinstance(node, exp.Replace | exp.Pad):
            _check_growth(clause, node)
        elif isinstance(node, exp.Star) and (any(node.args.values()) or not isinstance(node.parent, exp.Count)):
            raise UsageError(f"{clause}: {shorten_sql(node)} is not supported")


LONGEST = 100  # characters of a constant that may be inserted into a text


def _check_growth(clause: str, node: exp.Expr) -> None:
    """Refuse calls of ``replace`` and ``lpad`` that could make a very long text.

    Args:
        clause: The name of the clause, for messages.
        node: The function call.

    Raises:
        UsageError: The text could become too long.
    """
    constants = [part for key, part in node.args.items() if isinstance(part, exp.Expr) and key != "this"]
    plain = all(isinstance(one, exp.Literal) for one in constants)
    short = all(len(one.name) <= LONGEST for one in constants)
    if isinstance(node, exp.Pad) and plain:
        short = short and 0 <= (read_whole(node.expression) or 0) <= LONGEST
    if not plain or not short or node.this.find(exp.Replace, exp.Pad):
        works = f"it takes constants of at most {LONGEST} characters, and stands in no other replace or pad"
        raise UsageError(f"{clause}: {shorten_sql(node)}: {works}")


# Parts of a tree ------------------------------------------------------------------------------------------------------

WRITTEN = "written"
ORDERED = "ordered"  # marks a cast that ``in_order`` added


def keep_text(item: exp.Expr) -> None:
    """Remember the text of an expression, so that ``as_written`` returns it even after names in it have changed."""
    item.meta[WRITTEN] = item.sql(dialect=DIALECT)


def forget_positions(root: exp.Expr) -> None:
    """Drop the positions in the query's text that the parser kept in each node of a tree, to save time.

    Copying them with the tree would take most of the time. What ``as_written`` needs is kept.
    """
    for node in root.walk():
        node._meta = {key: node.meta[key] for key in (WRITTEN, ORDERED) if node.meta.get(key)} or None


def as_written(item: exp.Expr) -> str:
    """Return the SQL of an expression as the analyst wrote it."""
    return str(item.meta.get(WRITTEN) or item.sql(dialect=DIALECT))


def shorten_sql(item: exp.Expr, else_: str | None = None) -> str:
    """Return the SQL of an expression if it is short.

    Otherwise return ``else_``, or the beginning of the SQL if ``else_`` is None.
    """
    written = as_written(item)
    return written if len(written) < 60 else else_ or f"{written[:57]}..."


def list_items(clause: exp.Expr | Sequence[exp.Expr] | None) -> list[exp.Expr]:
    """Return the expressions of a clause, which may have several, one or none."""
    return [] if clause is None else [clause] if isinstance(clause, exp.Expr) else list(clause)


def read_clause(query: exp.Expr, name: str) -> exp.Expr | None:
    """Return the content of FROM, or the condition of WHERE, HAVING or QUALIFY; None without that clause."""
    clause = query.args.get(name)
    return clause.this if clause is not None else None


def set_condition(query: exp.Expr, name: str, *parts: exp.Expr | None) -> None:
    """Set WHERE, HAVING or QUALIFY to the given conditions, joined by AND, or remove it if all are None."""
    known = [part for part in parts if part is not None]
    kinds = {"where": exp.Where, "having": exp.Having, "qualify": exp.Qualify}
    query.set(name, kinds[name](this=exp.and_(*known)) if known else None)


def order_items(query: exp.Expr) -> list[exp.Ordered]:
    """Return the items of ORDER BY."""
    clause = query.args.get("order")
    return clause.expressions if clause is not None else []


def find_outermost(roots: Iterable[exp.Expr], matches: Callable[[exp.Expr], bool]) -> Iterator[exp.Expr]:
    """Yield the parts of expressions that match and are not inside another part that matches, in order."""
    return (node for root in roots for node in root.walk(bfs=False, prune=matches) if matches(node))


def find_aggregates(*roots: exp.Expr) -> list[exp.Expr]:
    """Return the outermost aggregate functions in some expressions, each with its FILTER."""
    return list(find_outermost(roots, lambda node: isinstance(node, (exp.Filter, *AGGREGATES))))


def has_aggregates(select: exp.Select) -> bool:
    """Return whether a query has aggregate functions but no GROUP BY, so that its result is a single row."""
    clauses = (select.args.get(name) for name in ("having", "qualify", "order"))
    for root in (*select.expressions, *(one for one in clauses if one is not None)):
        for node in root.find_all(*AGGREGATES):
            holder = node.parent.parent if isinstance(node.parent, exp.Filter) else node.parent
            if not isinstance(holder, exp.Window) or node.arg_key != "this":
                return True
    return False


def is_count(item: exp.Expr) -> bool:
    """Return whether an expression is COUNT(*)."""
    plain = isinstance(item, exp.Count) and isinstance(item.this, exp.Star) and not item.expressions
    return plain and not any(item.this.args.values())


def is_star(item: exp.Expr) -> bool:
    """Return whether an item of the select list is ``*`` or ``table.*``."""
    star = item.this if isinstance(item, exp.Column) else item
    return isinstance(star, exp.Star) and not any(star.args.values())


def is_literal_number(item: exp.Expr | None) -> TypeGuard[exp.Literal]:
    """Return whether an expression is a plain number."""
    return isinstance(item, exp.Literal) and not item.is_string


def null_if_nobody(number: exp.Expr, figure: exp.Expr) -> exp.Case:
    """Return SQL for ``figure`` that is NULL where ``number``, the number of records, is 0."""
    nobody = exp.EQ(this=number, expression=exp.Literal.number(0))
    return exp.Case(ifs=[exp.If(this=nobody, true=exp.null())], default=figure)


# From text to a tree --------------------------------------------------------------------------------------------------

CLAUSES = {
    "expressions", "from_", "joins", "where", "group", "having", "qualify", "order", "limit", "offset", "distinct",
}  # fmt: skip
CLAUSE_NAMES = {
    "with_": "WITH", "distinct": "DISTINCT", "qualify": "QUALIFY", "windows": "WINDOW",
    "sample": "USING SAMPLE", "laterals": "LATERAL", "pivots": "PIVOT", "into": "INTO",
}  # fmt: skip
SETS = (exp.GroupingSets, exp.Rollup, exp.Cube)
STUMBLES = (AttributeError, LookupError, TypeError, ValueError)  # what the parser ends in on some texts: SHOW alone
DEEPEST = 200  # levels of nested expressions; at about 300 writing them as SQL exceeds Python's stack
CHAINS = (exp.And, exp.Or, exp.Add, exp.Sub, exp.Mul)  # chains of these need no deeper stack


@contextmanager
def refuse_bad_text(sql: str) -> Iterator[None]:
    """Turn parser errors in the body of a ``with`` into errors that an analyst understands.

    Args:
        sql: The text that the body parses.

    Raises:
        UsageError: The query is not a text, not Unicode, or nested too deeply.
    """
    if not isinstance(sql, str):
        raise UsageError(f"the query must be text, not {type(sql).__name__}")
    try:
        sql.encode()
        yield
    except UnicodeEncodeError as error:
        raise UsageError("the query is not valid Unicode text") from error
    except RecursionError as error:
        raise UsageError("the query is nested too deeply") from error


def parse_select(sql: str) -> exp.Select:
    """Parse a text that is a single SELECT.

    Raises:
        UsageError: It is anything else.
    """
    tree = parse_query_text(sql)
    if not isinstance(tree, exp.Select):
        raise UsageError(f"only one SELECT can be answered, not {type(tree).__name__.upper()}")
    return tree


def parse_query_text(sql: str) -> exp.Expr:
    """Parse a text that is a single SELECT, or a UNION of several.

    Raises:
        UsageError: It is anything else.
    """
    logger = logging.getLogger("sqlglot")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # whatever the parser warns about is refused below
    try:
        with refuse_bad_text(sql):
            statements = [s for s in sqlglot.parse(sql, dialect=DIALECT) if s is not None]
    except SqlglotError as error:
        raise UsageError(f"the query can't be parsed: {_explain_syntax(error)}") from error
    except STUMBLES as error:
        raise UsageError("the query can't be parsed") from error
    finally:
        logger.setLevel(level)
    if len(statements) != 1 or not isinstance(statements[0], exp.Select | exp.Union):
        kinds = [type(statement).__name__.upper() for statement in statements] or ["nothing"]
        written = kinds[0] if len(kinds) == 1 else "several statements"
        raise UsageError(f"only one SELECT can be answered, not {written}")
    rest = [(statements[0], 0)]
    while rest:
        node, depth = rest.pop()
        if depth > DEEPEST:
            raise UsageError("the query is nested too deeply")
        chain = type(node) if isinstance(node, CHAINS) else None
        rest += [(child, depth + (type(child) is not chain)) for child in node.iter_expressions()]
    for one in list(statements[0].find_all(exp.CurrentDate, exp.IgnoreNulls)):
        if isinstance(one, exp.CurrentDate) and not any(one.args.values()):
            today = datetime.now(UTC).date().isoformat()
            one.replace(exp.cast(exp.Literal.string(today), "DATE"))
        elif isinstance(one.this, exp.AnyValue):  # which ignores them anyway
            one.replace(one.this)
    forget_positions(statements[0])  # where in the text its parts stand
    return statements[0]


def _explain_syntax(error: SqlglotError) -> str:
    """Return what is wrong with a text of SQL and where, in words for the analyst."""
    found: dict[str, Any] = next(iter(getattr(error, "errors", None) or []), {})
    if not found:
        return str(error).splitlines()[0]
    what = str(found.get("description", "")).rstrip(".")
    what = "something is missing" if "Required keyword" in what else what
    near = f"{found.get('start_context', '')}{found.get('highlight', '')}"[-40:].strip()
    return f"{what}, after {near!r} (line {found.get('line')}, column {found.get('col')})"


# Clauses --------------------------------------------------------------------------------------------------------------


def refuse_others(node: exp.Expr, known: set[str]) -> None:
    """Refuse a query that has clauses other than the ``known`` ones.

    Raises:
        UsageError: There is another clause.
    """
    for clause, value in node.args.items():
        if value and clause not in known:
            instead = "a query has WHERE, GROUP BY, HAVING, QUALIFY, ORDER BY and LIMIT"
            raise UsageError(f"{CLAUSE_NAMES.get(clause, clause.strip('_').upper())} is not supported; {instead}")


def check_clauses(select: exp.Select, place: str = "") -> None:
    """Refuse what is not supported in the clauses of a SELECT.

    Args:
        select: The SELECT.
        place: The text that follows the name of a clause in messages.

    Raises:
        UsageError: A clause is not supported.
    """
    read_limits(select)
    parts = [("SELECT", item.unalias()) for item in select.expressions if not is_star(item)]
    for name in ("where", "having", "qualify"):
        condition = read_clause(select, name)
        parts += [(name.upper(), condition)] if condition is not None else []
    parts += [("GROUP BY", item) for item in group_items(select)]
    for item in order_items(select):
        if item.args.get("with_fill"):
            raise UsageError("ORDER BY .. WITH FILL is not supported")
        parts += [] if isinstance(item.this, exp.Var) else [("ORDER BY", item.this)]  # ORDER BY ALL
    for name, part in parts:
        check_kinds(f"{name}{place}", part, aggregates=name not in ("WHERE", "GROUP BY"))


def group_items(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the items of GROUP BY, including those inside GROUPING SETS, ROLLUP and CUBE.

    Raises:
        UsageError: GROUP BY has another form.
    """
    clause = select.args.get("group")
    for key, value in clause.args.items() if clause else ():
        if value and key not in ("expressions", "all"):
            raise UsageError(f"GROUP BY {key.replace('_', ' ').upper()} is not supported")
    rest = list(clause.expressions)[::-1] if clause else []
    while rest:
        item = rest.pop()
        if isinstance(item, (*SETS, exp.Tuple, exp.Paren)):
            rest += list(item.iter_expressions())[::-1]
        else:
            yield item


def output_position(item: exp.Expr, number: int) -> int | None:
    """Return the index, from 0, of the output that a number names; None if the expression is not a number.

    Args:
        item: The expression in GROUP BY or ORDER BY.
        number: The number of outputs.

    Raises:
        UsageError: There is no output at that position.
    """
    if not is_literal_number(item):
        return None
    place = read_whole(item)
    if place is None or not 1 <= place <= number:
        raise UsageError(f"position {item.this} is not in the select list")
    return place - 1


def read_limits(select: exp.Query) -> dict[str, int | None]:
    """Return the numbers of LIMIT and OFFSET under the keys "limit" and "offset"; None for one that is absent.

    Raises:
        UsageError: One of them is not a whole number.
    """
    numbers: dict[str, int | None] = {"limit": None, "offset": None}
    for name in numbers:
        clause = select.args.get(name)
        if clause:
            known = ("count", "direction") if isinstance(clause, exp.Fetch) else ("expression",)
            number = clause.args.get(known[0])
            numbers[name] = read_whole(number) if number is not None else None
            others = [value for key, value in clause.args.items() if value and key not in known]
            # FETCH has options, of which ROWS ONLY changes nothing
            plain = all(isinstance(one, exp.LimitOptions) and not one.args.get("with_ties")
                        and not one.args.get("percent") for one in others)  # fmt: skip
            if numbers[name] is None or not plain:
                raise UsageError(f"{name.upper()} must be a whole number")
    return numbers


def read_whole(item: exp.Expr) -> int | None:
    """Return the value of a literal that is a whole number of at most 18 digits; None for any other expression."""
    digits = item.this if is_literal_number(item) else ""
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None


# Orders ---------------------------------------------------------------------------------------------------------------
# Columns whose type has its own order (ENUM): the release publishes text and states the order.
#
# They are sorted, grouped and compared with each other in that order, as in the source. Constants are compared as text,
# also as in the source.

ENUM = exp.DataType.Type.ENUM
PREDICATES = (*COMPARISONS, exp.Between, exp.In, exp.Is, exp.Like, exp.ILike)


def in_order(tree: exp.Select, orders: Mapping[str, Sequence[str]]) -> exp.Select:
    """Return a query in which columns whose values have a stated order are cast to types with that order.

    The casts stand only where order matters, such as in comparisons, MIN and ORDER BY.

    Args:
        tree: The query.
        orders: The values of such columns in order, by name of the column.
    """
    for item in list(tree.find_all(exp.Column)) if orders else ():
        node = item.find_ancestor(*PREDICATES)
        # a condition compares a record's own value with constants: as text
        among_texts = node is not None and all(other.name == item.name for other in node.find_all(exp.Column))
        if item.name in orders and not (among_texts and item.find_ancestor(exp.Where) is not None):
            labels = [exp.Literal.string(one) for one in orders[item.name]]
            ordered = exp.cast(item.copy(), exp.DataType(this=ENUM, expressions=labels))
            ordered.meta.update({ORDERED: True, WRITTEN: as_written(item)})
            item.replace(ordered)
    return tree


def unwrap_order(expression: exp.Expr | None) -> exp.Expr | None:
    """Return the column inside a cast that ``in_order`` added; return any other expression as it is."""
    return expression.this if isinstance(expression, exp.Cast) and expression.to.this == ENUM else expression
