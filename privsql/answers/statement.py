"""An analyst's SQL as one SELECT, and what may stand in its clauses. What its names mean is not looked at here."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql.engine.names import fold
from privsql.engine.sqlfiles import DIALECT
from privsql.errors import UsageError
from privsql.model.estimate import FIGURES

if TYPE_CHECKING:
    from collections.abc import Iterator

CLAUSES = {"expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset"}
WRITTEN = {
    "with_": "WITH", "distinct": "DISTINCT", "qualify": "QUALIFY", "windows": "WINDOW",
    "sample": "USING SAMPLE", "laterals": "LATERAL", "pivots": "PIVOT", "into": "INTO",
}  # fmt: skip
COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
CONNECTIVES = (exp.And, exp.Or, exp.Not, exp.Paren)
WHERE = (
    *CONNECTIVES, *COMPARISONS, exp.In, exp.Between, exp.Is, exp.Like, exp.ILike, exp.Escape, exp.Column,
    exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Cast, exp.DataType,
    exp.DataTypeParam,
)  # fmt: skip
HAVING = (
    *CONNECTIVES, *COMPARISONS, exp.Between, exp.Literal, exp.Neg, exp.Column, exp.Identifier, exp.Count, exp.Star
)  # fmt: skip
MEASURES: dict[type[exp.Expr], Literal["count", "sum", "avg", "min", "max"]] = {
    exp.Count: "count", exp.Sum: "sum", exp.Avg: "avg", exp.Min: "min", exp.Max: "max"
}  # fmt: skip
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
    """The one SELECT that the text is, with known clauses alone; ``UsageError`` for anything else."""
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
    select = statements[0]
    _check_depth(select)
    refuse_others(select, CLAUSES)
    return _from_last(select)


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


def _from_last(select: exp.Select) -> exp.Select:
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
    _check_outputs(select)
    _check_groups(select)
    _check_kinds(select.args.get("where"), WHERE)
    _check_having(select)
    order = select.args.get("order")
    for item in order.expressions if order else ():
        if item.args.get("with_fill"):
            raise UsageError("ORDER BY .. WITH FILL is not supported")
        if not (isinstance(item.this, exp.Column) or is_measure(item.this) or _is_position(item.this, select)):
            raise not_ordered(item.this)


def _check_outputs(select: exp.Select) -> None:
    items = [item.unalias() for item in select.expressions]
    for item in items:
        if not is_measure(item) and not isinstance(item, exp.Column):
            raise UsageError(f"{text(item)} is not supported; select columns and COUNT(*)")
    measures = [text(item) for item in items if is_measure(item)]
    if len(measures) != 1:
        raise UsageError(f"select COUNT(*), or SUM or AVG, once, not {', '.join(measures) or 'columns alone'}")
    names = [fold(name) for name in titles(select)]
    for item, name in zip(items, names, strict=True):
        if names.count(name) > 1 or (name in FIGURES and not is_measure(item)):
            raise UsageError(f"two columns of the answer are called {name!r}; give one an alias")


def _check_groups(select: exp.Select) -> None:
    clause = select.args.get("group")
    for key, value in clause.args.items() if clause else ():
        if value and key != "expressions":
            raise UsageError(f"GROUP BY {key.replace('_', ' ').upper()} is not supported")
    for item in clause.expressions if clause else ():
        if not isinstance(item, exp.Column) and not _is_position(item, select):
            raise not_grouped(item)


def grouped(select: exp.Select) -> set[str]:
    """The names that stand in GROUP BY, in small letters."""
    clause = select.args.get("group")
    return {fold(item.name) for item in clause.expressions if isinstance(item, exp.Column)} if clause else set()


def _check_having(select: exp.Select) -> None:
    clause = select.args.get("having")
    _check_kinds(clause, HAVING)
    alias = next(item.alias for item in select.expressions if is_measure(item.unalias()))
    known = grouped(select)
    for item in clause.find_all(exp.Count, exp.Column) if clause else ():
        if isinstance(item, exp.Count) and not is_count(item):
            raise UsageError(f"HAVING {text(item)} is not what the query asks for")
        if not isinstance(item, exp.Column) or fold(item.name) in known:
            continue
        if item.table or fold(item.name) != fold(alias):
            raise UsageError(f"HAVING {text(item)}: only COUNT(*) and columns of GROUP BY can stand there; use WHERE")


def _check_kinds(clause: exp.Where | exp.Having | None, kinds: tuple[type[exp.Expr], ...]) -> None:
    if clause is None:
        return
    for node in clause.this.walk():
        if type(node) not in kinds:
            raise UsageError(f"{clause.key.upper()}: {short(node, type(node).__name__)} is not supported")
        if isinstance(node, exp.Cast) and any(node.find_all(exp.Column)):
            raise UsageError(f"{clause.key.upper()}: {text(node)}: only constants can be cast")


def _is_position(item: exp.Expr, select: exp.Select) -> bool:
    """Whether it names an output by its position."""
    if not isinstance(item, exp.Literal) or item.is_string:
        return False
    place = whole_number(item)
    if place is None or not 1 <= place <= len(select.expressions):
        raise UsageError(f"position {item.this} is not in the select list")
    return True


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


def is_measure(item: exp.Expr) -> bool:
    """Whether it is COUNT(*), or SUM, AVG and the like of a column."""
    added = type(item) in MEASURES and not isinstance(item, exp.Count) and isinstance(item.this, exp.Column)
    return is_count(item) or (added and not item.expressions)


def titles(select: exp.Select) -> list[str]:
    """What the columns of the answer are called."""
    return [item.alias or MEASURES.get(type(item)) or item.name for item in select.expressions]


def not_grouped(item: exp.Expr) -> UsageError:
    """The error for an item of GROUP BY that is no column."""
    return UsageError(f"GROUP BY {text(item)} is not supported; group by columns")


def not_ordered(item: exp.Expr) -> UsageError:
    """The error for an item of ORDER BY that is not in the answer."""
    return UsageError(f"ORDER BY {text(item)} is not supported; order by columns of the answer or COUNT(*)")


def text(item: exp.Expr) -> str:
    """An expression as SQL."""
    return item.sql(dialect=DIALECT)


def short(item: exp.Expr, else_: str | None = None) -> str:
    """An expression as SQL; where that is long, its beginning, or ``else_``."""
    written = text(item)
    return written if len(written) < 60 else else_ or f"{written[:57]}..."
