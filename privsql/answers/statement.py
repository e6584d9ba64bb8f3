"""An analyst's SQL as one SELECT, and what may stand in its clauses. What its names mean is not looked at here."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql.answers.functions import AGGREGATES, forget
from privsql.answers.functions import check as check_kinds
from privsql.engine.names import fold
from privsql.engine.sqlfiles import DIALECT
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

CLAUSES = {"expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset"}
WRITTEN = {
    "with_": "WITH", "distinct": "DISTINCT", "qualify": "QUALIFY", "windows": "WINDOW",
    "sample": "USING SAMPLE", "laterals": "LATERAL", "pivots": "PIVOT", "into": "INTO",
}  # fmt: skip
SETS = (exp.GroupingSets, exp.Rollup, exp.Cube)
STUMBLES = (AttributeError, LookupError, TypeError, ValueError)  # what the parser ends in on some texts: SHOW alone
DEEPEST = 200  # expressions inside each other: Python's stack ends near 300 when they are written as SQL
CHAINS = (exp.And, exp.Or, exp.Add, exp.Sub, exp.Mul)  # are written without going deeper


@contextmanager
def reading(sql: str) -> Iterator[None]:
    """``UsageError`` for what is no text, or too much of it."""
    if not isinstance(sql, str):
        raise UsageError(f"the query must be text, not {type(sql).__name__}")
    try:
        sql.encode()
        yield
    except UnicodeEncodeError as error:
        raise UsageError("the query is not valid Unicode text") from error
    except RecursionError as error:
        raise UsageError("the query is nested too deeply") from error


def parsed(sql: str) -> exp.Select:
    """The one SELECT that the text is; ``UsageError`` for anything else."""
    try:
        with _quiet():
            statements = [s for s in sqlglot.parse(sql, dialect=DIALECT) if s is not None]
    except SqlglotError as error:
        raise UsageError(f"the query can't be parsed: {str(error).splitlines()[0]}") from error
    except STUMBLES as error:
        raise UsageError("the query can't be parsed") from error
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        kinds = [type(statement).__name__.upper() for statement in statements] or ["nothing"]
        raise UsageError(
            f"only one SELECT can be answered, not {kinds[0] if len(kinds) == 1 else 'several statements'}"
        )
    _check_depth(statements[0])
    forget(statements[0])  # where in the text its parts stand
    return statements[0]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the parser's own warnings: what it can't read is refused here."""
    logger = logging.getLogger("sqlglot")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _check_depth(root: exp.Expr) -> None:
    rest = [(root, 0)]
    while rest:
        node, depth = rest.pop()
        if depth > DEEPEST:
            raise UsageError("the query is nested too deeply")
        chain = type(node) if isinstance(node, CHAINS) else None
        rest += [(child, depth + (type(child) is not chain)) for child in node.iter_expressions()]


def refuse_others(node: exp.Expr, known: set[str]) -> None:
    """``UsageError`` for a clause that is not known."""
    for clause, value in node.args.items():
        if value and clause not in known:
            raise UsageError(f"{WRITTEN.get(clause, clause.strip('_').upper())} is not supported")


def from_last(select: exp.Select) -> exp.Select:
    """FROM t JOIN .. SELECT .. as SELECT .. FROM t JOIN .., where the joins are the query's and not the table's."""
    clause = select.args.get("from_")
    if clause and isinstance(clause.this, exp.Table) and clause.this.args.get("joins"):
        select.set("joins", [*clause.this.args["joins"], *(select.args.get("joins") or [])])
        clause.this.set("joins", None)
    return select


# The clauses of a count query ---


def check(select: exp.Select) -> None:
    """``UsageError`` for what is not supported in a clause."""
    limits(select)
    for item in select.expressions:
        check_kinds("SELECT", item.unalias(), aggregates=True)
    if not any(list(aggregates(item)) for item in select.expressions):
        raise UsageError("select COUNT(*), or SUM or AVG, not columns alone")
    for name, several in (("where", False), ("having", True)):
        clause = select.args.get(name)
        if clause:
            check_kinds(name.upper(), clause.this, aggregates=several)
    for item in group_items(select):
        check_kinds("GROUP BY", item)
    order = select.args.get("order")
    for item in order.expressions if order else ():
        if item.args.get("with_fill"):
            raise UsageError("ORDER BY .. WITH FILL is not supported")
        if not isinstance(item.this, exp.Var):  # ORDER BY ALL
            check_kinds("ORDER BY", item.this, aggregates=True)


def group_items(select: exp.Select) -> Iterator[exp.Expr]:
    """What stands in GROUP BY, inside GROUPING SETS, ROLLUP and CUBE, too; ``UsageError`` for other forms of it."""
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


def aggregates(root: exp.Expr) -> Iterator[exp.Expr]:
    """The outermost aggregate functions in an expression, each with its FILTER."""
    rest = [root]
    while rest:
        node = rest.pop()
        if isinstance(node, (exp.Filter, *AGGREGATES)):
            yield node
        else:
            rest += list(node.iter_expressions())[::-1]


def grouped(select: exp.Select) -> set[str]:
    """The names that stand in GROUP BY, in small letters."""
    return {fold(item.name) for item in group_items(select) if isinstance(item, exp.Column)}


def position(item: exp.Expr, number: int) -> int | None:
    """The place of the output that a position names, from 0; None for what is no position."""
    if not isinstance(item, exp.Literal) or item.is_string:
        return None
    place = whole_number(item)
    if place is None or not 1 <= place <= number:
        raise UsageError(f"position {item.this} is not in the select list")
    return place - 1


def limits(select: exp.Select) -> dict[str, int | None]:
    """The numbers of LIMIT and OFFSET, in small letters."""
    found = {}
    for name in ("limit", "offset"):
        clause = select.args.get(name)
        found[name] = whole_number(clause.expression) if clause else None
        if clause and (found[name] is None or any(value for key, value in clause.args.items() if key != "expression")):
            raise UsageError(f"{name.upper()} must be a whole number")
    return found


def whole_number(item: exp.Expr) -> int | None:
    """The value of a literal that is a whole number of at most 18 digits."""
    digits = item.this if isinstance(item, exp.Literal) and not item.is_string else ""
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None


def is_count(item: exp.Expr) -> bool:
    """Whether it is COUNT(*)."""
    plain = isinstance(item, exp.Count) and isinstance(item.this, exp.Star) and not item.expressions
    return plain and not any(item.this.args.values())
