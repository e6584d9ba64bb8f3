"""An analyst's SQL over item sets read as a count query, or refused by name.

A query is  SELECT COUNT(*) FROM release [WHERE ..]; its condition is any Boolean combination of
list_contains(items, x), list_has_all(items, [..]), list_has_any(items, [..]) and comparisons of len(items) with
numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers.parse import COMPARISONS, CONNECTIVES, parsed, source, whole_count
from privsql.answers.question import CountQuery
from privsql.engine.roles import fold
from privsql.engine.sqlfiles import DIALECT, column
from privsql.errors import UsageError

if TYPE_CHECKING:
    from privsql.engine.roles import Roles

ITEMS = "items"  # the list under its internal name
ALLOWED = "COUNT(*), FROM and WHERE"
FUNCTIONS = "list_contains, list_has_all, list_has_any, len"
CONSTANT = (exp.Literal, exp.Neg, exp.Cast, exp.DataType, exp.Boolean, exp.Null)
NAMED = {"list_has_all", "array_has_all"}  # sqlglot has no node of its own for them


def read(sql: str, roles: Roles, release: str) -> CountQuery:
    """Take a query apart; ``UsageError`` names what is not supported.

    >>> from privsql.engine.roles import Field, Roles
    >>> roles = Roles((), (Field("pages", "INTEGER[]"),))
    >>> query = read("SELECT COUNT(*) FROM t WHERE list_contains(pages, 7) AND len(pages) > 2", roles, "t")
    >>> query.filters["sa"][0].sql(dialect="duckdb")
    'ARRAY_CONTAINS("items", 7) AND LENGTH("items") > 2'
    """
    try:
        sql.encode()
        select = parsed(sql)
        for clause, value in select.args.items():
            if value and clause not in ("expressions", "from_", "where"):
                raise UsageError(f"{clause.strip('_').upper()} is not supported; a query over items has {ALLOWED}")
        alias = source(select, release)
        where = select.args.get("where")
        condition = _Reader(roles, alias).condition(where.this) if where else exp.true()
    except UnicodeEncodeError as error:
        raise UsageError("the query is not valid Unicode text") from error
    except RecursionError as error:
        raise UsageError("the query is nested too deeply") from error
    name = whole_count(select)
    return CountQuery((), {"qi": [], "sa": [condition]}, {"qi": [], "sa": []}, None, ((None, name),))


class _Reader:
    """Reads conditions on the one column of item sets."""

    def __init__(self, roles: Roles, alias: str) -> None:
        self._column, self._alias = roles.sensitive[0].name, alias

    def condition(self, node: exp.Expr) -> exp.Expr:
        """The condition over the internal name."""
        if isinstance(node, CONNECTIVES):
            for key in ("this", "expression"):
                if node.args.get(key) is not None:
                    node.set(key, self.condition(node.args[key]))
            return node
        if isinstance(node, exp.Boolean):
            return node
        if isinstance(node, exp.ArrayContains | exp.ArrayContainsAll | exp.ArrayOverlaps):
            parts: list[exp.Expr] = [node.this, node.expression]
        elif isinstance(node, exp.Anonymous) and node.name.lower() in NAMED and len(node.expressions) == 2:
            parts = node.expressions
        elif isinstance(node, (*COMPARISONS, exp.Between)):
            return self._number(node)
        else:
            raise UsageError(f"WHERE: {_shown(node)} is not supported; conditions are on {FUNCTIONS}")
        self._is_items(parts[0], node)
        single = isinstance(node, exp.ArrayContains)
        for constant in [parts[1]] if single else _listed(parts[1], node):
            _constant(constant, node)
        parts[0].replace(column(ITEMS))
        return node

    def _number(self, node: exp.Expr) -> exp.Expr:
        """A comparison of the number of items with constants."""
        sides = [node.this, *(node.args[key] for key in ("expression", "low", "high") if node.args.get(key))]
        lengths = [side for side in sides if isinstance(side, exp.Length | exp.ArraySize)]
        if len(lengths) != 1:
            raise UsageError(f"WHERE: {_shown(node)} is not supported; compare len({self._column}) with a number")
        self._is_items(lengths[0].this, node)
        for side in sides:
            if side is not lengths[0]:
                _constant(side, node)
        lengths[0].this.replace(column(ITEMS))
        return node

    def _is_items(self, node: exp.Expr, inside: exp.Expr) -> None:
        if not isinstance(node, exp.Column):
            raise UsageError(f"WHERE: {_shown(inside)} is not supported; its first argument must be {self._column}")
        if node.args.get("db") or fold(node.table) not in ("", fold(self._alias)):
            raise UsageError(f"column {_shown(node)!r} is not of {self._alias}")
        if fold(node.name) != fold(self._column):
            raise UsageError(f"column {node.name!r} is not in the release; it has {self._column}")


def _listed(node: exp.Expr, inside: exp.Expr) -> list[exp.Expr]:
    if not isinstance(node, exp.Array):
        raise UsageError(f"WHERE: {_shown(inside)} is not supported; list the items: [a, b]")
    return node.expressions


def _constant(node: exp.Expr, inside: exp.Expr) -> None:
    for part in node.walk():
        if not isinstance(part, CONSTANT):
            raise UsageError(f"WHERE: {_shown(inside)} is not supported; {_shown(part)} is not a constant")


def _shown(node: exp.Expr) -> str:
    text = node.sql(dialect=DIALECT)
    return text if len(text) < 60 else f"{text[:57]}..."
